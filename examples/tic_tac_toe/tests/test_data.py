import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("split", ["train", "validation"])
def test_agent_and_opponent_open_equally_often(split: str) -> None:
    """Neither side has the advantage of the first move in training or in held-out games."""
    openers = [json.loads(line)["question"] for line in (DATA / f"{split}.jsonl").read_text().splitlines()]
    assert openers.count("X") == openers.count("O") == len(openers) / 2

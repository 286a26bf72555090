"""Runs with `deterministic: true` at other concurrencies, which are the same run."""

import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from e2e.test_local_run import finished, games
from nat.runs.journal import JOURNAL_NAME

__all__ = ["games"]
pytestmark = pytest.mark.usefixtures("forked_processes")


def found(output_dir: Path) -> tuple[dict[str, str], list[tuple[str, ...]], list[dict[str, float]]]:
    """The checksums of all weights and moments, the tokens and log probabilities, and the metrics without times."""
    (run,) = output_dir.glob(f"2*/{JOURNAL_NAME}")
    files = sorted(run.parent.rglob("*.safetensors"))
    weights = {str(f.relative_to(run.parent)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    with sqlite3.connect(run) as journal:
        key = "phase, epoch, example_id, generation"
        rows = journal.execute(f"SELECT {key}, rows FROM rollouts ORDER BY {key}").fetchall()  # noqa: S608 - no input
        epochs = journal.execute("SELECT record FROM epochs ORDER BY epoch").fetchall()
    metrics = [json.loads(record)["metrics"] for (record,) in epochs]
    timed = ("time/", "seconds", "per_second", "memory")
    return weights, rows, [{k: v for k, v in each.items() if not any(t in k for t in timed)} for each in metrics]


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "llms.player.dtype", "bfloat16"),
        ("-o", "llms.player.lora", "{rank: 4}", "-o", "llms.player.threads", "2"),
    ],
    ids=["all weights in bfloat16", "LoRA in float32"],
)
def test_a_run_is_the_same_to_the_bit_at_any_concurrency(tmp_path, games, options):
    """Weights, optimizer state, log probabilities and metrics are equal for one rollout at a time and for sixteen."""
    runs = []
    for concurrency in ("1", "16"):
        folder = tmp_path / concurrency
        finished(
            folder,
            *games,
            *("-o", "llms.player.deterministic", "true", "-o", "eval.general.max_concurrency", concurrency),
            *options,
        )
        runs.append(found(folder))
    assert runs[0] == runs[1]
    assert len(runs[0][0]) > 2

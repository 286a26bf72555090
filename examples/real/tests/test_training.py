import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples.real.city.make_data import rows
from examples.real.packages import Unavailable, model
from examples.real.rows import write

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

CITY = Path(__file__).parents[1] / "city"
NAT = (sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()")
CHEAP = {
    "finetuning.num_epochs": "2",
    "trajectory_builders.rollouts.examples_per_epoch": "4",
    "llms.student.threads": "1",
    "llms.student.max_tokens": "4",
}
NUM_HELD_OUT = 2
DEADLINE_S = 600


def test_two_epochs_train_the_real_model(tmp_path: Path) -> None:
    """The pretrained model from its wheel plays, is trained on each epoch, and every update passes its proofs."""
    try:
        model()
    except Unavailable as error:
        pytest.skip(f"the model cannot be fetched: {error}")
    write(tmp_path, rows())
    held_out = tmp_path / "data" / "held_out.jsonl"
    held_out.write_text("".join(held_out.read_text().splitlines(keepends=True)[:NUM_HELD_OUT]))
    files = {
        "eval.general.dataset.file_path": str(tmp_path / "data" / "train.jsonl"),
        "finetuning.run_configuration.validation_dataset": str(held_out),
        "finetuning.output_dir": str(tmp_path / "runs"),
    }
    options = [word for key, value in (CHEAP | files).items() for word in ("-o", key, value)]
    done = subprocess.run(
        [*NAT, "finetune", "--config_file=config.yml", "--json", *options],
        cwd=CITY,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    summary = json.loads(done.stdout)
    assert summary["failures"] == []
    assert summary["broken_by"] == {}
    assert summary["tokens_trained"] > 0

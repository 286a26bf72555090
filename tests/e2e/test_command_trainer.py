"""`nat finetune` with a trainer program of the user's: kills of the harness and of the backend, and a verdict."""

import sys

import pytest

from fakes.command_trainer import ROOT, assert_verdict, nat, run_of, write_config
from nat.backend.training.program import PROGRAM_JOBS
from nat.runs.journal import Journal
from nat.runs.records import RunState

pytestmark = [
    pytest.mark.usefixtures("forked_processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="the program finds its ancestors in /proc"),
]
KILLS = """
import os, sys
from pathlib import Path

count, generations = Path(sys.argv[1]), int(sys.argv[2])
with count.open("a") as file:
    file.write(os.environ["NAT_JOB"] + "\\n")
if len(count.read_text().splitlines()) == 2:
    pid = os.getpid()
    for _ in range(generations):
        of_fork, _, stand_in = Path(f"/proc/{pid}/comm").read_text().partition(" ")
        child = stand_in.strip() if of_fork == "for" else pid
        pid = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, 9)
    import time
    time.sleep(60)
import glob, shutil
from safetensors.numpy import load_file, save_file

shutil.copytree(os.environ["NAT_MODEL"], os.environ["NAT_OUTPUT"], dirs_exist_ok=True)
(file,) = glob.glob(os.environ["NAT_OUTPUT"] + "/*.safetensors")
weights = {name: value * 1.001 for name, value in load_file(file).items()}
save_file(weights, file, metadata={"format": "pt"})
"""
"""Counts its runs, scales all weights, and in its second run kills an ancestor: the backend, or the harness.

The parent of a fork is that of the process for which it stands: its own one is shared by all tests.
"""


@pytest.mark.slow
@pytest.mark.parametrize("generations", [2, 3], ids=["backend", "harness"])
def test_a_killed_run_trains_each_epoch_once(tmp_path, generations):
    """The half-trained job is done anew, the one before it is not."""
    (tmp_path / "kills.py").write_text(KILLS)
    count = tmp_path / "count"
    config = write_config(
        tmp_path, [sys.executable, str(tmp_path / "kills.py"), str(count), str(generations)], epochs=2
    )
    assert nat("finetune", f"--config_file={config}").returncode != 0
    run = run_of(tmp_path)
    resumed = nat("finetune", f"--resume={run}")
    assert resumed.returncode == 0, resumed.stderr
    first, killed, again = count.read_text().splitlines()
    assert killed == again != first
    with Journal.open(run) as journal:
        assert journal.info().state is RunState.COMPLETED
    assert [path for path in (run / PROGRAM_JOBS).iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_a_run_reaches_its_verdict(tmp_path):
    """The example's trainer ends with a verdict and a diagnosis, as the learner does."""
    assert_verdict(tmp_path, [sys.executable, str(ROOT / "examples/trainers/plain_torch.py")], epochs=1)

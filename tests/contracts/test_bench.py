"""Each bench runs and prints a row of its table, on small sizes."""

import subprocess
import sys

import pytest

ONE = ("--case=tiny float32: 1,", "--engine=ours", "--rounds=1")
GPU = ("--device=cpu", "--shapes=tiny", "--weights=full", "--chats=2", "--lengths=32", "--tokens=64")
REAL = ("2x16", "--shape=tiny", "--dtypes=float32", "--weights=full", "--checkpointing=false")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("sampler", ONE), ("gpu", GPU), ("learner_real", REAL), ("learner", ()), ("harness", ()), ("gateway", ())],
)
def test_it_measures(name, options):
    """The last line is a row, and its first figure is positive."""
    command = [sys.executable, "-m", f"bench.{name}", *options]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout
    [*_, row] = [line for line in printed.splitlines() if line.startswith("| ")]
    cells = [cell.replace(",", "") for cell in row.strip("| ").split(" | ")]
    figures = [float(cell) for cell in cells if cell.replace(".", "", 1).isdecimal()]
    assert figures[0] > 0

"""Runs that were recorded: the same inputs give the same rows, rewards, metrics and verdicts.

What changes on purpose is recorded again (`python -m recorded`), and listed in the changelog.
"""

from pathlib import Path

import pytest

from recorded.facts import differences, facts
from recorded.playing import play
from recorded.runs import RUNS

DATA = Path(__file__).with_name("data")
ROUNDING = 2e-3
"""Of losses and log probabilities that our backend computes, relative and absolute; processors round differently."""
TRAINED_TOO = {"lora", "kto", "distill"}
"""Trainings of seconds, beside those of `grpo` and `dpo`."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in TRAINED_TOO else ()) for name in RUNS]
)
def test_a_run_is_as_it_was_recorded(tmp_path, name):
    """A script's numbers are exact. After each event of the run, its journal gives the state that the run has."""
    play(name, tmp_path)
    expected = (DATA / f"{name}.jsonl").read_text().splitlines()
    found = differences(expected, facts(tmp_path / "runs" / "latest"), 0.0 if RUNS[name].script else ROUNDING)
    assert found == [], "\n".join(found[:20])

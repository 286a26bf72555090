"""Runs that were recorded: the same inputs give the same rows, files, pages and messages, and old journals are read.

What changes on purpose is recorded again (`python -m recorded`), and listed in the changelog.
"""

from pathlib import Path

import pytest

from recorded.playing import play
from recorded.runs import RUNS
from recorded.shown import differences, shown

DATA = Path(__file__).with_name("data")
ROUNDING = 2e-3
"""Of losses and log probabilities that our backend computes, relative and absolute; processors round differently."""


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def bound_of(name: str) -> float:
    """A script's numbers are exact."""
    return 0.0 if RUNS[name].script else ROUNDING


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_as_it_was_recorded(tmp_path, name):
    """The console, the files, what the adapter got, the pages, the exports and the rows.

    After each event of the run, its journal gives the state that the run has.
    """
    play(name, tmp_path)
    found = differences(recorded(name), shown(tmp_path), bound_of(name))
    assert found == [], "\n".join(found[:20])

"""Runs that were recorded: the same inputs give the same rows, files, pages and messages, and old journals are read.

What changes on purpose is recorded again (`python -m recorded`), and listed in the changelog.
"""

import asyncio
import gzip
import json
import re
import sqlite3
from pathlib import Path

import pytest

from nat.finetuning.diagnosis.gather import findings_of
from nat.runs.journal import JOURNAL_NAME
from recorded.playing import play
from recorded.runs import RUNS
from recorded.shown import differences, of_folder, shown

DATA = Path(__file__).with_name("data")
ROUNDING = 2e-3
"""Of losses and log probabilities that our backend computes, relative and absolute; processors round differently."""

LATER = re.compile(
    r"^Calls {5}.*\n(?: {10}(?:training|held-out), .*\n)*"
    r"|,\n( +)\"(?:usage|policy_versions)\": \{\n(?:\1 .*\n)*\1\}"
    r"|^ {10}the learner waited .*\n|^Waiting: .*\n\n"
    r"|^ +\"(?:drift/staleness_max|drift/dropped_groups|time/waiting_for_\w+)\": .*\n",
    re.MULTILINE,
)
"""What runs record since the journals of before: the calls of LLMs, the weights that played an epoch, and waiting."""


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


@pytest.mark.parametrize("name", RUNS)
def test_a_journal_of_before_is_read(tmp_path, name):
    """Pages, exports and diagnosis of a run folder that an earlier release wrote.

    What that release concluded is replaced by what is concluded today, since conditions get better words and bounds.
    """
    (tmp_path / JOURNAL_NAME).write_bytes(gzip.decompress((DATA / f"{name}.sqlite.gz").read_bytes()))
    causes = [finding.model_dump(mode="json") for finding in asyncio.run(findings_of(tmp_path, ended=True))]
    concluded = {"causes": causes, "next_step": causes[0]["remedy"] if causes else None}
    with sqlite3.connect(tmp_path / JOURNAL_NAME) as journal:
        for (record,) in journal.execute("SELECT record FROM facts WHERE name = 'summary'").fetchall():
            journal.execute(
                "UPDATE facts SET record = ? WHERE name = 'summary'", [json.dumps(json.loads(record) | concluded)]
            )
    expected = LATER.sub("", of_folder(recorded(name)))
    found = differences(expected, shown(tmp_path, tmp_path), bound_of(name))
    assert found == [], "\n".join(found[:20])

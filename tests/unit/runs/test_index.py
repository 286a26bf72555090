"""The paths of the user's runs are remembered."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nat.runs.find import remember_run, started_runs
from nat.runs.journal import JOURNAL_NAME


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state" / "nat" / "runs"


def run_folder(name: str) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / JOURNAL_NAME).touch()
    return folder


def test_runs_that_start_together_are_all_remembered(state, tmp_path):
    """Each has an entry of its own, with absolute paths."""
    folders = [run_folder(f"run-{number:02}") for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(remember_run, folders))
    assert sorted(run.run_dir for run in started_runs()) == [tmp_path / folder for folder in folders]
    assert {run.started_in for run in started_runs()} == {tmp_path}


def test_a_home_that_cannot_be_written_stops_no_run(state, monkeypatch):
    """The run is found below its output folder, as before."""
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    remember_run(run_folder("lost"))
    assert started_runs() == []

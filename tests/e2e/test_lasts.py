"""A run survives odd text, and ends with the cause if the journal or the disk fails."""

import asyncio
import gc
import json
import logging
import os
import resource
import shutil
import sys
import tempfile
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.errors import ConfigError, JournalError, NatError
from nat.finetuning.progress import RunProgress
from nat.runs.journal import JOURNAL_NAME
from nat.runs.records import Phase, RunState

LONG, LOOKS, OBJECTS = 90, 4, 5
"""Epochs of a long run here, those that are looked at each time, and the objects that may stay of one: its status."""


async def test_a_surrogate_is_recorded_and_the_run_continues(tmp_path):
    """Surrogates in an id, an answer and an error are journaled as escapes; different ids stay different."""

    async def agent(question, ask):
        if question == "q3":
            raise ValueError("no such face: \ud83d")
        return await ask(question) + "\udc00"

    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, agent)
        project.finetuning["max_failure_rate"] = 0.5
        ids = ["a\ud83d", "a\ud83e", "b", "c"]
        rows = [{"id": item, "question": f"q{n}", "answer": "right\udc00"} for n, item in enumerate(ids)]
        project.dataset.write_text(json.dumps(rows))
        with project.registered():
            result = await project.run(validation_dataset=str(project.dataset))
    assert result.summary.epochs == 2
    with project.journal() as journal:
        assert journal.info().state is RunState.COMPLETED
        records = list(journal.rollouts(Phase.TRAIN, 0))
        assert {record.example_id for record in records} == {"a\\ud83d", "a\\ud83e", "b", "c"}
        assert {record.output for record in records if record.reward == 1} == {"right\\udc00"}
        assert [r.error for r in records if r.example_id == "c"] == ["ValueError: no such face: \\ud83d"] * 2
        assert journal.validations()[0].scores.keys() == {"a\\ud83d", "a\\ud83e", "b", "c"}


class AfterEpoch(RunProgress):
    """Calls a function in the middle of the run."""

    def __init__(self, act):
        self._act = act

    def epoch_finished(self, record):
        self._act()


@pytest.fixture
def unlogged():
    """Else pytest keeps each record that an earlier test's level lets through."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
@pytest.mark.usefixtures("unlogged")
async def test_a_long_run_takes_no_more_with_each_epoch(tmp_path, monkeypatch):
    """Descriptors, threads, temporary files and tasks stay; memory grows by what a run returns of an epoch.

    The least of some epochs counts, as a thread may just have opened a file, and those of other tests may end.
    """
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    epochs = [*range(LONG // 3 - LOOKS, LONG // 3), *range(LONG - LOOKS, LONG)]
    taken, objects = [], []

    def look():
        project.adapter.submitted[:] = [None] * len(project.adapter.submitted)  # as a backend does, it forgets them
        server.requests.clear()
        if len(project.adapter.submitted) - 1 in epochs:
            gc.collect()
            descriptors, files = len(list(Path("/proc/self/fd").iterdir())), len(list(scratch.rglob("*")))
            taken.append((descriptors, threading.active_count(), len(asyncio.all_tasks()), files))
            objects.append(len(gc.get_objects()))

    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["num_epochs"] = LONG
        with project.registered():
            await project.run(AfterEpoch(look), validation_dataset=str(project.held_out), validation_interval=10)
    early, late = ([min(each) for each in zip(*looks, strict=True)] for looks in (taken[:LOOKS], taken[LOOKS:]))
    assert all(after <= before for before, after in zip(early, late, strict=True)), taken
    assert (objects[-1] - objects[LOOKS - 1]) / (LONG - LONG // 3) < OBJECTS


@pytest.mark.parametrize("lost", ["file", "folder"])
async def test_a_deleted_journal_ends_the_run(tmp_path, caplog, lost):
    """SQLite would continue to write to the deleted file; the next transaction detects that it is gone.

    The error is reported once and names no file that is gone, too.
    """

    def lose():
        [journal] = project.output_dir.glob(f"2*/{JOURNAL_NAME}")
        if lost == "folder":
            shutil.rmtree(journal.parent)
        else:
            journal.unlink()

    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered(), pytest.raises(JournalError, match="was deleted, moved or replaced during the run"):
            await project.run(AfterEpoch(lose))
    assert "deleted, moved or replaced" not in caplog.text
    assert ("The run's records are in" in caplog.text) == (lost != "folder")
    assert len(project.adapter.submitted) < 2
    assert project.closed == project.built


@contextmanager
def files_of_at_most(size: int):
    """Limit the size of files, so that a write fails halfway as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_journal_that_cannot_be_written_ends_the_run(tmp_path):
    """The first error is raised, with a remedy for disks, although it cannot be recorded."""

    async def wordy(question, ask):
        return await ask(question) + " " * 100_000

    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, wordy)
        refused = pytest.raises(NatError, match="cannot be written")
        with project.registered(), refused as error, files_of_at_most(200_000):
            await project.run()
    assert "ulimit -f" in error.value.hint
    assert "micro_batch_tokens" not in str(error.value)


async def test_an_agent_may_change_the_working_directory(tmp_path, monkeypatch):
    """All paths of a run are resolved at its start; what it records of them stays as it was written."""
    elsewhere = tmp_path / "elsewhere"

    async def agent(question, ask):
        elsewhere.mkdir(exist_ok=True)
        os.chdir(elsewhere)
        return await ask(question)

    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, agent)
        monkeypatch.chdir(tmp_path)
        project.finetuning["output_dir"] = "output"
        project.config["eval"]["general"]["dataset"]["file_path"] = project.dataset.name
        given = project.given(validation_dataset=project.held_out.name).model_copy(
            update={"config_file": Path("config.yml")}
        )
        with project.registered():
            result = await project.run_given(given)
    assert (result.summary.state, result.summary.epochs) == (RunState.COMPLETED, 2)
    assert result.run_dir.resolve().parent == project.output_dir
    assert list(elsewhere.iterdir()) == []
    with project.journal() as journal:
        assert "file_path: train.json\n" in journal.info().config_text


async def test_an_unusable_output_folder_is_an_error_before_anything_is_built(tmp_path):
    """The error names the option."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        (tmp_path / "file").touch()
        project.finetuning["output_dir"] = str(tmp_path / "file" / "runs")
        with project.registered(), pytest.raises(ConfigError, match=r"finetuning\.output_dir: .*file is a file"):
            await project.run()
    assert project.built == 0


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
async def test_rollouts_on_ray_without_ray_are_an_error_before_anything_is_built(tmp_path):
    """The error says what to install."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.finetuning["rollouts"] = {"workers": 2}
        with project.registered(), pytest.raises(ConfigError, match=r"ray is not installed\n.*pip install"):
            await project.run()
    assert project.built == 0

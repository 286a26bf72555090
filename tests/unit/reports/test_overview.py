"""The list of runs."""

import pytest

from fakes.runs_on_disk import CONFIG, make_run
from nat.reports.overview import list_page, overviews, trained_model
from nat.runs.find import list_runs
from nat.runs.journal import JOURNAL_NAME
from nat.runs.liveness import ShownState, marked_alive
from nat.runs.records import RunState


def test_a_run_in_a_line(tmp_path):
    """It has the id, the time, the state, the epochs, the held-out scores and the model."""
    make_run(tmp_path, "run-1")
    (run,) = overviews(list_runs(tmp_path))
    assert (run.state, run.epochs, run.num_epochs) == (ShownState.COMPLETED, 3, 3)
    assert (run.before, run.after, run.model) == (0.2, 0.8, "models/small")
    header, line = list_page([run], tmp_path).splitlines()
    assert header.split() == ["RUN", "STARTED", "(UTC)", "STATE", "EPOCHS", "HELD-OUT", "VERDICT", "MODEL"]
    assert " ".join(line.split()) == "run-1 2026-03-14 12:00 completed 3/3 0.200 → 0.800 models/small"


def test_a_killed_run_is_told_from_a_running_one(tmp_path):
    """The journal says `running` for both; the lock knows."""
    folder = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    with marked_alive(folder):
        assert overviews([folder])[0].state is ShownState.RUNNING
    assert overviews([folder])[0].state is ShownState.INTERRUPTED


def test_an_unreadable_run_does_not_hide_the_others(tmp_path):
    """A damaged file and a run that was killed as it began have a line with the reason below the table."""
    make_run(tmp_path, "run-1")
    for name, content in (("run-2", b"not a database, but long enough to be read"), ("run-3", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / JOURNAL_NAME).write_bytes(content)
    runs = overviews(list_runs(tmp_path))
    assert [run.state for run in runs] == [ShownState.UNREADABLE, ShownState.UNREADABLE, ShownState.COMPLETED]
    page = list_page(runs, tmp_path)
    assert "run was killed as it began" in page
    assert "file is not a database" in page


def test_no_runs(tmp_path):
    """The page says where it looked and how to look elsewhere."""
    assert list_page(overviews(list_runs(tmp_path)), tmp_path) == (
        f"No runs below {tmp_path}. --output_dir names another place, the `finetuning.output_dir` of your runs."
    )


@pytest.mark.parametrize(
    ("config", "model"),
    [
        (CONFIG, "models/small"),
        ({}, None),
        ({"llms": {"a": {"model": "m"}, "b": {"model": "n"}}}, None),
        ({"llms": {"a": {"model": "m"}, "b": {"model": "n"}}, "finetuning": {"target_model": "b"}}, "n"),
        ({"llms": {"a": {"model_name": "served"}}}, "served"),
        ({"llms": {"a": {"model": "owner/name", "revision": "0123456789abcdef"}}}, "owner/name at 0123456789ab"),
        ({"llms": ["odd"], "trainer_adapters": None}, None),
    ],
)
def test_the_trained_model(config, model):
    """The trainer adapter's LLM, the target, or the only one; never a guess among several."""
    assert trained_model(config) == model

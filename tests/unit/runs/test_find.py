"""Runs are found by path, id, the beginning of an id, or `latest`."""

from pathlib import Path

import pytest

from fakes.runs_on_disk import make_run
from nat.errors import JournalError
from nat.runs.find import find_run, known_runs, list_runs, newest_if_unfinished, newest_unfinished, remember_run
from nat.runs.journal import JOURNAL_NAME
from nat.runs.liveness import marked_alive
from nat.runs.records import RunState

OLD, NEW, OTHER = "20260314-092653-5a1f", "20260314-120000-77aa", "20260313-080000-0c0c"


@pytest.fixture
def root(tmp_path):
    """Two output folders with three runs, and files of others."""
    for folder in (f"nat/finetuning/{OLD}", f"nat/finetuning/{NEW}", f"tic_tac_toe/{OTHER}"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / JOURNAL_NAME).touch()
    (tmp_path / "nat/finetuning/latest").symlink_to(OLD)
    (tmp_path / "notes").mkdir()
    return tmp_path


def test_runs_are_listed_newest_first(root):
    """Each run is listed once, whichever output folder it lies in; the link `latest` is not another run."""
    assert [run.relative_to(root) for run in list_runs(root)] == [
        Path(f"nat/finetuning/{NEW}"),
        Path(f"nat/finetuning/{OLD}"),
        Path(f"tic_tac_toe/{OTHER}"),
    ]
    assert list_runs(root / "missing") == []


def test_by_path(root, monkeypatch):
    """A path wins over the root; a link gives the folder that it points to, so that its name is the run's id."""
    assert find_run(str(root / "tic_tac_toe" / OTHER), root / "missing") == root / "tic_tac_toe" / OTHER
    assert find_run(str(root / "nat/finetuning/latest"), root).name == OLD
    monkeypatch.chdir(root / "tic_tac_toe" / OTHER)
    assert find_run(".", root).name == OTHER


def test_an_unknown_name_lists_what_is_there(root):
    """The error has the runs below the root, the one that was probably meant, and how to look elsewhere."""
    with pytest.raises(JournalError) as caught:
        find_run("20260314-092653-5a1e", root)
    text = str(caught.value)
    assert f"Did you mean '{OLD}'?" in text
    assert str(root / "tic_tac_toe" / OTHER) in text
    assert "--output_dir" in text


def started(folder: Path, run_id: str, monkeypatch: pytest.MonkeyPatch, *, output: Path) -> Path:
    """A run that the user starts in a folder."""
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    (output / run_id).mkdir(parents=True)
    (output / run_id / JOURNAL_NAME).touch()
    remember_run(output / run_id)
    return output / run_id


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two projects; the runs of one lie on another disk."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return {
        "old": started(tmp_path / "a", OTHER, monkeypatch, output=Path(".tmp/nat/finetuning")),
        "disk": started(tmp_path / "a", OLD, monkeypatch, output=tmp_path / "disk"),
        "deep": started(tmp_path / "b", NEW, monkeypatch, output=Path("x/y/z/runs")),
    }


def test_latest_is_the_newest_that_was_started_here(places, tmp_path, monkeypatch):
    """Wherever its output lies; a newer one of another project is not meant."""
    monkeypatch.chdir(tmp_path / "a")
    assert find_run("latest") == tmp_path / "disk" / OLD
    assert [[run.name for run in runs] for runs in known_runs()] == [[OLD, OTHER], [NEW]]
    monkeypatch.chdir(tmp_path / "b")
    assert find_run("latest") == tmp_path / "b" / places["deep"]
    (tmp_path / "c").mkdir()
    monkeypatch.chdir(tmp_path / "c")
    with pytest.raises(JournalError, match=f"no run was started in this folder.*{NEW}"):
        find_run("latest")


def test_an_id_is_found_from_everywhere(places, tmp_path, monkeypatch):
    """By its beginning, too; but not below another folder that the user names."""
    monkeypatch.chdir(tmp_path / "b")
    assert find_run(OTHER[:12]) == tmp_path / "a" / places["old"]
    with pytest.raises(JournalError, match="below nowhere there are none"):
        find_run(OTHER, Path("nowhere"))


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.COMPLETED])
def test_a_run_is_unfinished_until_it_has_completed(tmp_path, state):
    """However it ended, it can go on; a process that trains it is going on with it already, and none begins anew."""
    run = make_run(tmp_path, "20260101-000000-aaaa", state=state)
    assert newest_unfinished(tmp_path) == newest_if_unfinished(tmp_path) == run
    with marked_alive(run):
        assert newest_unfinished(tmp_path) is newest_if_unfinished(tmp_path) is None
        assert newest_if_unfinished(tmp_path, trained=True) == run

"""A run that goes on writes to nothing outside its folder, whoever made the folder."""

import os

import pytest

from nat.backend.output_folder import LOCK
from nat.errors import JournalError
from nat.runs.liveness import LOCK_NAME
from nat.runs.log_file import LOG_NAME
from nat.runs.own_files import check_own_files
from nat.runs.tracker import FOLDER as TRACKERS
from nat.wire.serving import CHECKPOINTS


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "run"
    (folder / CHECKPOINTS / "step_000001").mkdir(parents=True)
    (folder / CHECKPOINTS / "latest").symlink_to("step_000001")
    (folder / "gone").symlink_to("never-there")
    return folder


def test_links_of_the_run_stay(run_dir):
    """Such as that to its newest checkpoint, wherever the folder is."""
    check_own_files(run_dir)
    check_own_files(moved := run_dir.rename(run_dir.with_name("moved")))
    assert (moved / CHECKPOINTS / "latest").is_dir()


@pytest.mark.parametrize(
    "name", [LOCK_NAME, LOG_NAME, "trajectories", TRACKERS, LOCK, f"{CHECKPOINTS}/jobs.jsonl", f"{TRACKERS}/wandb.json"]
)
@pytest.mark.parametrize("target", ["../secret", "../run-2", "/etc/passwd"])
def test_a_link_out_of_the_folder_is_refused(run_dir, name, target):
    """What it leads to would be truncated, added to or cleared."""
    (run_dir / name).parent.mkdir(exist_ok=True)
    (run_dir / name).symlink_to(
        os.path.relpath(run_dir / target, (run_dir / name).parent) if target[0] == "." else target
    )
    with pytest.raises(JournalError, match=f"would write to {name}, which is a link out of its folder"):
        check_own_files(run_dir)


def test_a_link_to_itself_is_refused(run_dir):
    """Nothing can be written there."""
    (run_dir / LOG_NAME).symlink_to(LOG_NAME)
    with pytest.raises(JournalError, match=f"{LOG_NAME}, which is of no use"):
        check_own_files(run_dir)


def test_a_pipe_is_refused(run_dir):
    """Who opens it would wait forever; the first few of many findings are shown."""
    for number in range(5):
        os.mkfifo(run_dir / f"pipe-{number}")
    with pytest.raises(JournalError, match=r"pipe-0, which is neither a file nor a folder, pipe-1, .* and 2 more"):
        check_own_files(run_dir)


def test_what_trackers_keep_is_theirs(run_dir):
    """Some of them link the files that they send."""
    inside = run_dir / TRACKERS / "wandb" / "run" / "files"
    inside.mkdir(parents=True)
    (inside / "model").symlink_to("/etc/passwd")
    check_own_files(run_dir)
    assert (inside / "model").is_symlink()

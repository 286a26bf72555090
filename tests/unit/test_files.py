"""Files are replaced whole, and failures to write have remedies."""

import errno

import pytest
from safetensors import SafetensorError

from nat.files import (
    REMOVED,
    REPLACED,
    log_tail,
    remove_unfinished,
    replace_link,
    replacing,
    replacing_folder,
    storage_failure,
    write_text,
)


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path):
    """Not the draft that was to replace it."""
    (target := tmp_path / "summary.json").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_text(target, "{}")
    failure = storage_failure(caught.value)
    assert failure is not None
    assert failure.message == f"{target}: Is a directory"
    assert "move it away" in failure.hint


def test_a_failed_write_leaves_the_old_file(tmp_path):
    """A reader never sees a partial file, and no temporary file stays behind."""
    path = tmp_path / "a.json"
    write_text(path, "old")

    def fail_halfway() -> None:
        with replacing(path) as file:
            file.write(b"ne")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_readable_until_the_new_one_is_complete(tmp_path):
    """Readers with the old file open keep it; others get the new one."""
    path = tmp_path / "deep" / "a.json"
    write_text(path, "old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_link_is_replaced_by_a_rename(tmp_path):
    """An existing link is replaced, even if it has no target."""
    link = tmp_path / "latest"
    for target in ("gone", "here"):
        replace_link(link, target)
        assert str(link.readlink()) == target
    assert list(tmp_path.iterdir()) == [link]


def test_a_full_disk_is_an_error_with_its_path():
    """The path comes from the error, or from the caller."""
    named = storage_failure(OSError(errno.ENOSPC, "No space left on device", "/data/x"))
    assert named.message == "/data/x: No space left on device"
    assert "free some space" in named.hint
    assert storage_failure(OSError(errno.EROFS, ""), "here").message == "here: Read-only file system"


def test_disk_errors_of_rust_libraries_are_recognised():
    """Safetensors has the error's number only in its text."""
    text = "Error while serializing: I/O error: No space left on device (os error 28)"
    assert storage_failure(SafetensorError(text)).message == "No space left on device"


@pytest.mark.parametrize(
    "error", [ValueError("no"), FileNotFoundError(errno.ENOENT, ""), ConnectionResetError(104, "")]
)
def test_other_errors_are_unchanged(error):
    """Errors that do not concern disks keep their text."""
    assert storage_failure(error) is None


def test_tail_shows_the_last_lines_only(tmp_path):
    """An error message has the last lines of a log only."""
    log = tmp_path / "log"
    log.write_text("".join(f"line {i}\n" for i in range(100)))
    assert log_tail(log, lines=2) == "    line 98\n    line 99"
    assert "empty" in log_tail(tmp_path / "missing")


def test_the_tail_of_a_huge_log_is_small(tmp_path):
    """A program may write gigabytes, or a line without an end; neither is read whole or shown."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(2**33)  # a sparse file
        file.seek(0, 2)
        file.write(b"x" * 100_000 + b"\nlast")
    assert log_tail(log).endswith("\n    last")
    assert len(log_tail(log)) < 20_000


def test_a_failed_write_leaves_the_old_folder(tmp_path):
    """So does a file of others that appears meanwhile; nothing else is left."""
    target = tmp_path / "model"

    def write(error, **more):
        with replacing_folder(target, **more) as folder:
            (folder / "a").write_text("new")
            raise error

    with replacing_folder(target) as folder:
        (folder / "a").write_text("old")
    with pytest.raises(OSError, match="disk full"):
        write(OSError("disk full"))
    with pytest.raises(FileExistsError), replacing_folder(target, may_replace=lambda _: False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (target / "a").read_text() == "old"


def test_a_kill_between_old_and_new_leaves_the_old(tmp_path):
    """After a kill in the middle of a replacement, the old folder gets its name back; partial folders are deleted."""
    for name in (".unfinished-x", f"{REPLACED}kept", f"{REPLACED}done", f"{REMOVED}gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").touch()
    (tmp_path / "done").mkdir()
    remove_unfinished(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "done"}
    assert (tmp_path / "kept" / "weights").exists()

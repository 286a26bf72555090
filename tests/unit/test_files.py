"""Files are replaced whole, and failures to write have remedies."""

import errno

import pytest
from safetensors import SafetensorError

from nat.files import replace_link, replacing, storage_failure, write_text


def test_a_file_that_fails_halfway_leaves_the_old_one(tmp_path):
    """A reader never sees a half file, and no temporary file stays behind."""
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


def test_the_old_file_stays_readable_until_the_new_one_is_whole(tmp_path):
    """Readers that have the old file open keep it; the others get the new one, and never none."""
    path = tmp_path / "deep" / "a.json"
    write_text(path, "old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_link_is_switched_by_a_rename(tmp_path):
    """A link that exists already is replaced, even if it points nowhere."""
    link = tmp_path / "latest"
    for target in ("gone", "here"):
        replace_link(link, target)
        assert str(link.readlink()) == target
    assert list(tmp_path.iterdir()) == [link]


def test_a_full_disk_is_told_with_its_place():
    """The name comes from the error, or from who knows what was to be written."""
    named = storage_failure(OSError(errno.ENOSPC, "No space left on device", "/data/x"))
    assert named.message == "/data/x: No space left on device"
    assert "free some space" in named.hint
    assert storage_failure(OSError(errno.EROFS, ""), "here").message == "here: Read-only file system"


def test_errors_of_libraries_in_rust_are_read():
    """Safetensors has the number in its text only."""
    text = "Error while serializing: I/O error: No space left on device (os error 28)"
    assert storage_failure(SafetensorError(text)).message == "No space left on device"


@pytest.mark.parametrize(
    "error", [ValueError("no"), FileNotFoundError(errno.ENOENT, ""), ConnectionResetError(104, "")]
)
def test_other_errors_are_none_of_them(error):
    """They keep their own words."""
    assert storage_failure(error) is None

"""Failures of files have remedies for files."""

import errno

import pytest
from safetensors import SafetensorError

from nat.wire.storage import storage_failure


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

"""An output folder belongs to one process, and must be writable."""

import os
import subprocess
import sys

import pytest

from nat.backend.output_folder import LOCK, TEMPLATE_TIME, claimed, template_time
from nat.errors import BackendError

HOLD = "import sys; from pathlib import Path; from nat.backend.output_folder import claimed\n"
HOLD += "with claimed(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"


def test_a_folder_belongs_to_one_process(tmp_path):
    """A second process gets an error with the owner; when the first has ended in any way, the folder is free."""
    folder = tmp_path / "new" / "art"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout.readline() == b"held\n"
        with (
            pytest.raises(BackendError, match=f"in use by another server, process {first.pid}") as error,
            claimed(folder),
        ):
            pass
        assert "--output_dir" in error.value.hint
        first.kill()
        first.communicate()
    with claimed(folder):
        assert (folder / LOCK).read_text() == f"{os.getpid()}\n"


def test_a_resumed_server_writes_the_date_of_its_first_start(tmp_path):
    """Else the prompts of a resumed run would differ from those before; a new start has a new date."""
    (tmp_path / TEMPLATE_TIME).write_text("2020-02-29T23:59:00\n")
    assert template_time(tmp_path, resume=True) == "2020-02-29T23:59:00"
    first = template_time(tmp_path, resume=False)
    assert first == template_time(tmp_path, resume=True) > "2026"
    assert template_time(None, resume=False) >= first

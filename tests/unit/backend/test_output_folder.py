"""An output folder belongs to one process, and must be writable."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

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


def test_a_patient_process_gets_the_folder_of_one_that_ends(tmp_path):
    """Such as the backend of a run that goes on while that of before saves its weights."""
    held, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with claimed(tmp_path):
            held.set()
            ends.wait(30)

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(hold)
        assert held.wait(30)
        threading.Timer(0.2, ends.set).start()
        with claimed(tmp_path, patience=30):
            assert ends.is_set()
        first.result()


@pytest.mark.parametrize(("place", "seen"), [("file", "File exists"), ("file/out", "Not a directory")])
def test_an_unusable_folder_is_a_mistake_of_the_caller(tmp_path, place, seen):
    """The error names the folder, the system's reason and a remedy, whatever the reason is."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(BackendError, match=rf"cannot write to {tmp_path / place}: {seen}") as error,
        claimed(tmp_path / place),
    ):
        pass
    assert "choose another" in error.value.hint


def test_a_resumed_server_writes_the_date_of_its_first_start(tmp_path):
    """Else the prompts of a resumed run would differ from those before; a new start has a new date."""
    (tmp_path / TEMPLATE_TIME).write_text("2020-02-29T23:59:00\n")
    assert template_time(tmp_path, resume=True) == "2020-02-29T23:59:00"
    first = template_time(tmp_path, resume=False)
    assert first == template_time(tmp_path, resume=True) > "2026"
    assert template_time(None, resume=False) >= first


@pytest.mark.parametrize("kept", [b"", b"yesterday", b"\xff\xfe", b"2026-13-01T00:00:00", b"x" * 10_000])
def test_a_time_that_is_none_ends_the_start(tmp_path, kept: bytes):
    """Each request would be refused by the template, in words that do not name the file."""
    (tmp_path / TEMPLATE_TIME).write_bytes(kept)
    with pytest.raises(
        BackendError, match=rf"{TEMPLATE_TIME} has '.{{0,40}}'; wanted is the time .*, such as 2"
    ) as error:
        template_time(tmp_path, resume=True)
    assert "the date of the run's first start" in error.value.hint

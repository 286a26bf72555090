import os
import subprocess
import sys

import pytest

from nat.backend.lock import claimed
from nat.errors import BackendError

HOLD = "import sys; from pathlib import Path; from nat.backend.lock import claimed\n"
HOLD += "with claimed(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"


def test_a_folder_belongs_to_one_process(tmp_path):
    """A second one is told who has it; once the first is gone, however it ended, the folder is free."""
    folder = tmp_path / "new" / "art"
    with subprocess.Popen(  # noqa: S603 - our own module
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
        assert (folder / ".lock").read_text() == f"{os.getpid()}\n"

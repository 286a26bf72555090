"""The log of a run's process in the run's folder: what its modules say, of which the console shows warnings only."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOG_NAME = "run.log"
LOG_FORMAT = "%(asctime)s - %(levelname)-8s - %(name)s:%(lineno)d - %(message)s"


@contextmanager
def log_kept(run_dir: Path) -> Iterator[None]:
    """Until the block ends, write all that the root logger lets through to `run.log`, readable by its owner only."""
    file, root = os.open(run_dir / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), logging.getLogger()
    handler = _LogFile(file)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        os.close(file)


class _LogFile(logging.Handler):
    """Writes each line at once."""

    def __init__(self, file: int) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """A full disk ends the run by an error of its journal; that this line is lost then is no news."""
        with suppress(OSError):
            os.write(self._file, f"{self.format(record)}\n".encode(errors="backslashreplace"))

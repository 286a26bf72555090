"""`python -m nat.backend DESCRIPTOR`: start the server with the options that the parent sends through a pipe."""

import ctypes
import json
import logging
import os
import sys
import time
from pathlib import Path

from nat.errors import NatError
from nat.secrets import keep_files_private, redact_output
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import FAILED, LOCAL_PACKAGES, NOTICE, NOTICES, ServeOptions, received

logger = logging.getLogger(__name__)

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's `mallopt`."""
_TURNS, _POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
"""Variables of libgomp: turns of the loop before a thread sleeps, and whether it waits in a loop at all."""
_BRIEFLY = "3000"
"""A chat takes a sixth of the time with these beside a load of 5, and 1.5 times as long on idle cores (measured)."""
_BUSY = 0.3
"""Cores that others use, from which on threads wait briefly."""
_SECONDS = 0.3
_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)
"""Columns of /proc/stat: idle, and idle while waiting for a disk."""


def share_cores() -> None:
    """Let threads wait only briefly if other programs use the cores, unless the user has chosen how they wait.

    Threads wait for each other at the end of every operation, by default in a loop for milliseconds. That is fastest on
    idle cores. Where other programs compute, such a loop keeps the very thread from running that it waits for.
    """
    if os.environ.keys() & {_TURNS, _POLICY} or not _STAT.is_file():
        return

    def times() -> list[int]:
        """Of all cores since the start of the system, by kind."""
        return [int(field) for field in _STAT.read_text().partition("\n")[0].split()[1:9]]

    before = times()
    time.sleep(_SECONDS)
    passed = [end - start for end, start in zip(times(), before, strict=True)]
    busy = (os.cpu_count() or 1) * (1 - sum(passed[_IDLE]) / max(1, sum(passed)))
    if busy >= _BUSY:
        os.environ[_TURNS] = _BRIEFLY
        logger.info("other programs use %.1f cores, so threads wait only briefly (%s=%s)", busy, _TURNS, _BRIEFLY)


def keep_free_pages() -> None:
    """Keep the pages of freed memory for what is allocated next, with glibc; call it before threads begin.

    As it is, each large block gets pages of its own, which the system has to clear, and returns them.
    """
    set_to = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if set_to is not None:
        set_to(_ARENA_MAX, 1)
        set_to(_TRIM_THRESHOLD, 2**31 - 1)
        if not set_to(_MMAP_THRESHOLD, 2**30):
            set_to(_MMAP_THRESHOLD, 2**25)  # glibc before 2.35


def main() -> int:
    """Run the backend until it is stopped; return the exit code."""
    keep_files_private()
    redact_output()
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        print("Error: the options come through a pipe; use `nat backend serve`", file=sys.stderr)  # noqa: T201
        return 2
    if not (line := _first_line(int(sys.argv[1]))).endswith(b"\n"):
        print("Error: the parent ended before it had sent the options", file=sys.stderr)  # noqa: T201
        return 1
    options = received(line)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if options.exit_with_parent:
        to_parent = _ToParent()
        to_parent.set_name(options.name)
        logging.getLogger(NOTICES).addHandler(to_parent)
    if missing := missing_packages(LOCAL_PACKAGES):
        return _failed(options, f"{', '.join(missing)}: not installed", install_hint("local"))
    share_cores()  # before torch is loaded
    if options.output_dir is not None:  # updates gain by it; a backend that only samples returns what a peak has taken
        keep_free_pages()
    from nat.backend.failures import explained
    from nat.backend.serve import serve

    try:
        serve(options)
    except NatError as error:
        return _failed(options, error.message, error.hint)
    except Exception as error:
        logger.exception("the backend failed")
        return _failed(options, *explained(error))
    return 0


class _ToParent(logging.Handler):
    """Tells the parent; its name is that of the model."""

    def emit(self, record: logging.LogRecord) -> None:
        event = {"event": NOTICE, "message": f"{self.name}: {record.getMessage()}"}
        print(json.dumps(event), flush=True)  # noqa: T201 - for the parent


def _failed(options: ServeOptions, message: str, hint: str | None) -> int:
    print(f"Error: {NatError(message, hint=hint)}", file=sys.stderr)  # noqa: T201 - the last word of a command line
    if options.exit_with_parent:
        print(json.dumps({"event": FAILED, "message": message, "hint": hint}), flush=True)  # noqa: T201 - for the parent
    return 1


def _first_line(descriptor: int) -> bytes:
    """Read no further than the first line, because the end of stdin means that the parent has ended."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


if __name__ == "__main__":
    sys.exit(main())

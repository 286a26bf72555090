"""What each of our processes does to keep secrets: its files, its output and its memory are its user's own.

Called by the entry points (`nat`, `python -m nat.backend`) and by no library function, since all of it holds for the
whole process.
"""

import logging
import os
import sys
from collections.abc import Iterable
from typing import IO, Any, TextIO, cast

from nat.wire.known_secrets import redact

logger = logging.getLogger(__name__)

_GROUP_AND_OTHERS = 0o077
_PR_SET_DUMPABLE = 4


def keep_files_private() -> None:
    """From now on only the user may read what this process and its children write: folders 0700, files 0600."""
    os.umask(os.umask(_GROUP_AND_OTHERS) | _GROUP_AND_OTHERS)


def redact_output() -> None:
    """From now on no known secret passes stdout or stderr: logs, tracebacks and prints of libraries included."""
    sys.stdout = cast("TextIO", RedactedText(sys.stdout))
    sys.stderr = cast("TextIO", RedactedText(sys.stderr))


def keep_memory_private() -> bool:
    """Keep other processes of the same user from reading this one's environment and memory; tells whether it could.

    On Linux `/proc/<pid>/environ` and `mem` then belong to root, and no debugger of the user's can attach; programs
    that this process starts are not affected. Elsewhere there is nothing of the kind.
    """
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415 - takes longer than all else here, and most commands do without

    failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if failed:
        logger.warning("prctl(PR_SET_DUMPABLE) failed: %s", os.strerror(ctypes.get_errno()))
    return not failed


def unredacted(stream: "TextIO | RedactedText") -> TextIO:
    """The stream itself, for the one line that shows a new key to the person who needs it."""
    return stream.plain if isinstance(stream, RedactedText) else stream


class RedactedText:
    """A text stream that replaces secrets in each text that is written to it."""

    def __init__(self, plain: TextIO) -> None:
        self.plain = plain

    @property
    def buffer(self) -> "RedactedBytes":
        return RedactedBytes(self.plain.buffer)

    def write(self, text: str) -> int:
        self.plain.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


class RedactedBytes:
    """Likewise for bytes, which are read as UTF-8."""

    def __init__(self, plain: IO[bytes]) -> None:
        self._plain = plain

    def write(self, data: bytes) -> int:
        text = bytes(data).decode(errors="surrogateescape")
        self._plain.write(redact(text).encode(errors="surrogateescape"))
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

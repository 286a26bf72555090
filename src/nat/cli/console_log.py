"""The log on stderr: lines of the level that the user asked for. A run keeps the others in its folder."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nat.runs.log_file import LOG_FORMAT

Show = Callable[[str], None]


class ConsoleLog(logging.StreamHandler):  # type: ignore[type-arg] # generic for type checkers only
    """Writes lines to stderr, or to what shows them meanwhile."""

    show: Show | None = None

    def format(self, record: logging.LogRecord) -> str:
        """On a terminal a warning is a sentence; of errors, the place and the traceback are shown as well.

        A message may quote what a model wrote, which must not control the terminal.
        """
        from nat.reports.text import printable

        is_sentence = record.levelno == self.level == logging.WARNING and self.stream.isatty()
        return printable(record.getMessage() if is_sentence else super().format(record))

    def emit(self, record: logging.LogRecord) -> None:
        if self.show is None:
            super().emit(record)
        else:
            self.show(self.format(record))


def configure(level: str) -> None:
    """Log to stderr from this level on; handlers of runs get all from `info` on."""
    handler = ConsoleLog(sys.stderr)
    handler.setLevel(level.upper())
    logging.basicConfig(level=min(handler.level, logging.INFO), format=LOG_FORMAT, handlers=[handler], force=True)


def is_chatty() -> bool:
    """True if the user asked for the lines of modules."""
    return any(handler.level < logging.WARNING for handler in _handlers())


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Until the block ends, a terminal's lines are given to `show`; those of a file still go there."""
    handlers = [handler for handler in _handlers() if handler.stream.isatty()]
    for handler in handlers:
        handler.show = show
    try:
        yield
    finally:
        for handler in handlers:
            handler.show = None


def _handlers() -> list[ConsoleLog]:
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, ConsoleLog)]

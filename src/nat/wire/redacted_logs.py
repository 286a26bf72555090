"""Logs without secrets, also where a program of others holds the handlers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from nat.wire.known_secrets import redact


class SecretsFilter(logging.Filter):
    """Lets every record pass, with its message and its traceback redacted."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (shown := redact(text)) != text:
            record.msg, record.args = shown, None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        return True


@contextmanager
def redacted_logs() -> Iterator[None]:
    """Redact what the root logger's handlers write until the block ends."""
    added, handlers = SecretsFilter(), list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(added)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(added)

"""Keep and restore the state of the process, so that a test does not affect later ones."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def process_state_kept() -> Iterator[None]:
    """Restore loggers, signal handlers, exception hooks, the umask and the memory's privacy when the block ends."""
    root = logging.getLogger()
    handlers, filters = list(root.handlers), {handler: list(handler.filters) for handler in root.handlers}
    levels = _levels()
    signals = {number: signal.getsignal(number) for number in _SIGNALS}
    hooks = sys.excepthook, threading.excepthook
    mask = _umask()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for handler, own in filters.items():
            handler.filters[:] = own
        for logger in _loggers():
            if logger.level != (before := levels.get(logger.name, logging.NOTSET)):
                logger.setLevel(before)
        for number, handle in signals.items():
            if signal.getsignal(number) is not handle:
                signal.signal(number, handle)
        sys.excepthook, threading.excepthook = hooks
        os.umask(mask)


def _loggers() -> list[logging.Logger]:
    known = logging.Logger.manager.loggerDict.values()
    return [logging.getLogger(), *(logger for logger in known if isinstance(logger, logging.Logger))]


def _levels() -> dict[str, int]:
    return {logger.name: logger.level for logger in _loggers()}


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

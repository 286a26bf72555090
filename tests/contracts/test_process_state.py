"""Changes of a test to the process are undone after it."""

import logging
import os
import signal
import sys
import threading

import pytest

from fakes.process_state import process_state_kept
from nat.cli.main import cli


@pytest.fixture
def quiet_library():
    """A logger whose level the command line changes."""
    logger = logging.getLogger("httpx")
    logger.setLevel(logging.INFO)
    return logger


def test_a_command_leaves_logging_as_it_was(quiet_library):
    """Handlers and levels are restored, even after `logging.basicConfig(force=True)`."""
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    with process_state_kept():
        cli.main(args=["--log-level", "error", "info", "components", "--json"], standalone_mode=False)
        logging.getLogger("a.new.one").setLevel(logging.ERROR)
        logging.getLogger().handlers[0].addFilter(lambda _: False)
        assert (root.level, list(root.handlers)) != before
        assert quiet_library.level == logging.WARNING
    assert (root.level, list(root.handlers)) == before
    assert quiet_library.level == logging.INFO
    assert logging.getLogger("a.new.one").level == logging.NOTSET


def test_filters_of_handlers_are_put_back():
    """Filters are removed again; otherwise they would drop records in later tests."""
    handler = logging.getLogger().handlers[0]
    before = list(handler.filters)
    with process_state_kept():
        handler.addFilter(lambda _: False)
    assert handler.filters == before


def test_signals_hooks_and_the_umask_are_put_back():
    """Signal handlers, exception hooks and the umask are restored."""

    def state():
        mask = os.umask(0o077)
        os.umask(mask)
        return mask, signal.getsignal(signal.SIGTERM), sys.excepthook, threading.excepthook

    before = state()
    with process_state_kept():
        os.umask(0o123)
        signal.signal(signal.SIGTERM, lambda *_: None)
        sys.excepthook = threading.excepthook = lambda *_: None
    assert state() == before

"""Which lines of the log reach the console."""

import logging
import sys
from io import StringIO

from nat.cli import console_log


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def said(level, stream, monkeypatch, shown=None):
    """What stderr gets of a line of each level; `shown` collects what a view gets."""
    monkeypatch.setattr(sys, "stderr", stream)
    console_log.configure(level)
    logger = logging.getLogger("nat.module")
    with console_log.shown_by((shown if shown is not None else []).append):
        for name in ("debug", "info", "warning", "error"):
            logger.log(getattr(logging, name.upper()), "a line of %s", name)
    return [line.rpartition(" - ")[2] for line in stream.getvalue().splitlines()]


def test_the_console_gets_what_was_asked_for(monkeypatch):
    """By default warnings and errors; each level with those above it."""
    assert said("warning", StringIO(), monkeypatch) == ["a line of warning", "a line of error"]
    assert said("info", StringIO(), monkeypatch) == ["a line of info", "a line of warning", "a line of error"]
    assert said("error", StringIO(), monkeypatch) == ["a line of error"]


def test_a_message_cannot_control_the_terminal(monkeypatch):
    """A warning may quote a model; escapes and reversed text are shown as such, by the log and by a live view."""
    shown, quoted = [], "boom \x1b[31m\u202e"
    for stream in (StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", stream)
        console_log.configure("warning")
        with console_log.shown_by(shown.append):
            logging.getLogger("nat.module").warning("%s", quoted)
        if not stream.isatty():
            assert stream.getvalue().endswith("boom \\x1b[31m\\u202e\n")
    assert shown == ["boom \\x1b[31m\\u202e"]


def test_other_handlers_get_info_at_every_level(monkeypatch):
    """The file in a run's folder is complete even if the console shows errors only."""
    monkeypatch.setattr(sys, "stderr", StringIO())
    console_log.configure("error")
    assert logging.getLogger().isEnabledFor(logging.INFO)
    console_log.configure("debug")
    assert logging.getLogger().isEnabledFor(logging.DEBUG)


def test_a_warning_on_a_terminal_is_a_sentence(monkeypatch):
    """Date, module and line are for logs; who asks for more lines gets them, and so does a file."""
    cases = ((Terminal(), "warning", True), (Terminal(), "info", False), (StringIO(), "warning", False))
    for stream, level, bare in cases:
        said(level, stream, monkeypatch)
        logging.getLogger("nat.module").warning("The score fell.")
        assert (stream.getvalue().splitlines()[-1] == "The score fell.") is bare


def test_a_live_view_shows_the_lines_of_a_terminal(monkeypatch):
    """Written past the view they would break it; a warning is a message, an error has its place."""
    shown = []
    assert said("warning", Terminal(), monkeypatch, shown) == []
    assert shown[0] == "a line of warning"
    assert "ERROR    - nat.module:" in shown[1]

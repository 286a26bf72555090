"""How a command ends before its time: Ctrl-C, SIGTERM and SIGHUP cancel it, and its cleanup runs.

Code that holds up the event loop at that moment is broken into after a few seconds, since nothing could be cancelled
before it returns. A second signal, or a cleanup that does not come to an end, kills the processes that the command has
started and ends its own at once.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from nat.builder.child_processes import kill_children

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_NOTICE_SECONDS = 3.0
"""How long the event loop may take to notice the first signal before the code that holds it up is broken into."""
_CLEANUP_SECONDS = 30.0
"""How long everything may take to be closed: a backend has ten seconds, and a folder may be slow."""
_EXIT_CODE_BASE = 128
_SHOW_CURSOR = "\x1b[?25h"


class Interrupted(KeyboardInterrupt):
    """A signal has ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(_reason(number))
        self.number = number

    @property
    def exit_code(self) -> int:
        """What shells give to a process that a signal ended."""
        return _EXIT_CODE_BASE + self.number


class Ending:
    """Which signal has come, and what it sets off."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._cancel: Callable[[str], None] = lambda _: None
        self._noticed = threading.Event()
        self._closed = threading.Event()
        self._breaks_in = False
        self._terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def on_first(self, cancel: Callable[[str], None]) -> None:
        """Call `cancel` with the reason, from a signal handler, when the first signal comes."""
        self._cancel = cancel

    def noticed(self) -> None:
        """The event loop is about to cancel what runs."""
        self._noticed.set()

    def close(self) -> None:
        """Everything is closed; nobody needs to be hurried any more."""
        self._closed.set()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """A signal has come; runs on the main thread, between two instructions of whatever it does."""
        if self.number is None:
            self.number = number
            self._leave_terminal(number)
            self._cancel(_reason(number))
            threading.Thread(target=self._hurry, args=(number,), daemon=True, name="ending").start()
        elif self._breaks_in:
            self._breaks_in = False
            raise Interrupted(number)
        else:
            self._end_at_once(number, "a second signal has come")

    def _hurry(self, number: int) -> None:
        """Break into code that holds up the event loop; end the process if the cleanup hangs."""
        while not (self._noticed.wait(_NOTICE_SECONDS) or self._closed.is_set()):
            self._breaks_in = True
            main = threading.main_thread().ident
            assert main is not None, "the main thread runs"
            signal.pthread_kill(main, number)
        if not self._closed.wait(_CLEANUP_SECONDS):
            self._end_at_once(number, f"the cleanup has not ended within {_CLEANUP_SECONDS:g} s")

    def _end_at_once(self, number: int, why: str) -> None:
        kill_children()
        with suppress(OSError, ValueError):
            cursor = _SHOW_CURSOR if self._terminals else ""
            os.write(sys.stderr.fileno(), f"{cursor}Ended at once: {why}.\n".encode())
        os._exit(_EXIT_CODE_BASE + number)

    def _leave_terminal(self, number: int) -> None:
        """After a hang-up the terminal is gone, and writing to it would be an error in the middle of the cleanup."""
        if signal.Signals(number).name == "SIGHUP":
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in self._terminals:
                os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """Handle the signals inside the block; one that is ignored (`nohup`) stays ignored."""
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ending.handle)
    try:
        yield ending
    finally:
        ending.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_within(seconds: float, code: int) -> None:
    """End the process even if a thread that nobody waits for holds up its exit."""
    timer = threading.Timer(seconds, os._exit, args=(code,))
    timer.daemon = True
    timer.start()


def _reason(number: int) -> str:
    return f"interrupted by {signal.Signals(number).name}"

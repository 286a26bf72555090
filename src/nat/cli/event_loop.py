"""Run a command's coroutine, and end it when a signal comes.

Coroutines run on uvloop where it is installed. Ctrl-C, SIGTERM and SIGHUP cancel the command, and its cleanup runs.
Code that blocks the event loop at that moment is interrupted after a few seconds, since nothing can be cancelled before
it returns. A second signal, or a cleanup that hangs, kills the command's child processes and ends the process at once.

A command with a `Preemption` can go on later: after SIGTERM its cleanup has the seconds of the grace and no more, and a
further SIGTERM changes nothing, since service managers repeat it.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from types import FrameType
from typing import Any, TypeVar

from nat.builder.child_processes import kill_children
from nat.errors import WorkflowError
from nat.runs.preemption import Preemption

T = TypeVar("T")

_COLLECT_AFTER = (50_000, 20, 50)
"""Garbage collector thresholds; with Python's default of 700, it would constantly walk the many records of a run."""

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_NOTICE_SECONDS = 3.0
"""Time for the event loop to notice the first signal before the code that blocks it is interrupted."""
_CLEANUP_SECONDS = 90.0
"""Time for the cleanup, of which a backend may need most to save its weights."""
_EXIT_CODE_BASE = 128
_SHOW_CURSOR = "\x1b[?25h"


class Interrupted(KeyboardInterrupt):
    """A signal ended the command."""

    def __init__(self, number: int, exit_code: int) -> None:
        super().__init__(_reason(number))
        self.number = number
        self.exit_code = exit_code


class SignalHandler:
    """Handles the signals of one command."""

    def __init__(self, preemption: Preemption | None = None) -> None:
        self.number: int | None = None
        self._preemption = preemption
        self._cancel: Callable[[str], object] = lambda _: None
        self._noticed = threading.Event()
        self._closed = threading.Event()
        self._interrupts = False
        self._terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def on_first(self, cancel: Callable[[str], object]) -> None:
        """Call `cancel` with the reason, from the signal handler, at the first signal."""
        self._cancel = cancel

    def noticed(self) -> None:
        """The event loop has noticed the signal and cancels the command."""
        self._noticed.set()

    def close(self) -> None:
        """The cleanup is complete."""
        self._closed.set()

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """The signal handler; it runs on the main thread, between two instructions of any code."""
        if self.number is None:
            self.number = number
            if (preemption := self._preempted_by(number)) is not None:
                preemption.begin()
            self._leave_terminal(number)
            self._cancel(_reason(number))
            threading.Thread(target=self._enforce, args=(number,), daemon=True, name="signals").start()
        elif self._interrupts:
            self._interrupts = False
            raise self.interrupted(number)
        elif self.number != number or self._preempted_by(number) is None:
            self._end_at_once(number, "a second signal arrived")

    def interrupted(self, number: int) -> Interrupted:
        """The error that ends the command after this signal."""
        return Interrupted(number, self._exit_code(number))

    def _preempted_by(self, number: int) -> Preemption | None:
        """What this signal begins, if it is the one after which the command goes on later."""
        return self._preemption if signal.Signals(number).name == "SIGTERM" else None

    def _exit_code(self, number: int) -> int:
        """The exit code of a preemption, else the one that shells report for a process that a signal ended."""
        preemption = self._preempted_by(number)
        return preemption.exit_code if preemption is not None and preemption.begun else _EXIT_CODE_BASE + number

    def _enforce(self, number: int) -> None:
        """Interrupt code that blocks the event loop; end the process if the cleanup hangs."""
        preemption = self._preempted_by(number)
        seconds = _CLEANUP_SECONDS if preemption is None else preemption.seconds_left
        end = time.monotonic() + seconds
        notice = min(_NOTICE_SECONDS, seconds / 4)
        while not (self._noticed.wait(notice) or self._closed.is_set()):
            self._interrupts = True
            main = threading.main_thread().ident
            assert main is not None, "the main thread runs"
            signal.pthread_kill(main, number)
            if time.monotonic() > end:
                break
        if not self._closed.wait(max(0.0, end - time.monotonic())):
            self._end_at_once(number, f"the cleanup did not end within {seconds:.0f} s")

    def _end_at_once(self, number: int, why: str) -> None:
        kill_children()
        with suppress(OSError, ValueError):
            cursor = _SHOW_CURSOR if self._terminals else ""
            os.write(sys.stderr.fileno(), f"{cursor}Ended at once: {why}.\n".encode())
        os._exit(self._exit_code(number))

    def _leave_terminal(self, number: int) -> None:
        """After a hang-up the terminal is gone, and writing to it would fail in the middle of the cleanup."""
        if signal.Signals(number).name == "SIGHUP":
            devnull = os.open(os.devnull, os.O_WRONLY)
            for stream in self._terminals:
                os.dup2(devnull, stream.fileno())
            os.close(devnull)


@contextmanager
def handled_signals(preemption: Preemption | None = None) -> Iterator[SignalHandler]:
    """Handle the signals inside the block; an ignored one (`nohup`) stays ignored."""
    signals = SignalHandler(preemption)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signals.handle)
    try:
        yield signals
    finally:
        signals.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_within(seconds: float, code: int) -> None:
    """End the process after `seconds` even if a thread delays its exit."""
    timer = threading.Timer(seconds, os._exit, args=(code,))
    timer.daemon = True
    timer.start()


def _reason(number: int) -> str:
    return f"interrupted by {signal.Signals(number).name}"


def run(coroutine: Coroutine[Any, Any, T], *, keep_stdout: bool = False, preemption: Preemption | None = None) -> T:
    """Like `asyncio.run`, but SystemExit and KeyboardInterrupt in a task of user code end only that task.

    With `keep_stdout`, what the agent and its framework print goes to stderr, so that `--json` prints JSON alone. With
    `preemption`, SIGTERM begins it; it cancels nothing if that is completed.

    Raises:
        Interrupted: Ctrl-C, SIGTERM or SIGHUP cancelled the coroutine, and its cleanup has run.
        WorkflowError: user code ended the coroutine, by `sys.exit` or by an unexpected cancellation.

    """
    gc.set_threshold(*_COLLECT_AFTER)
    printing = redirect_stdout(sys.stderr) if keep_stdout else nullcontext()
    with printing, handled_signals(preemption) as signals, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        task = loop.create_task(coroutine)

        def cancel(reason: str) -> None:
            signals.noticed()
            if preemption is None or not preemption.completed:
                task.cancel(reason)

        signals.on_first(lambda reason: loop.call_soon_threadsafe(cancel, reason))
        try:
            return _result(loop, task)
        except asyncio.CancelledError:
            if signals.number is None:
                raise WorkflowError(
                    "code of the configuration's components cancelled the command",
                    hint="look for a CancelledError that is raised although nothing was cancelled",
                ) from None
            raise signals.interrupted(signals.number) from None
        except SystemExit as error:
            raise WorkflowError(
                f"code of the configuration's components called sys.exit({error.code!r})",
                hint="raise an exception that says what is wrong; only the command itself may end the process",
            ) from error


def _result(loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> T:
    """The loop passes SystemExit and KeyboardInterrupt of any task to here; the other tasks can continue."""
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt):
            if task.done():
                raise


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None, which means asyncio's own loop, where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory

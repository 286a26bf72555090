"""Run a command's coroutine, and end it when a signal comes.

Coroutines run on uvloop where it is installed. Ctrl-C, SIGTERM and SIGHUP cancel the command, and its cleanup runs. A
second signal, or a cleanup that hangs, kills the command's child processes and ends the process at once.

A command with a `Preemption` can go on later: after SIGTERM its cleanup has the seconds of the grace and no more, and a
further SIGTERM changes nothing, since service managers repeat it.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
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
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
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


class _Signals:
    """Handles the signals of one command."""

    def __init__(self, preemption: Preemption | None) -> None:
        self.number: int | None = None
        self.cancel: Callable[[str], object] = lambda _: None
        self._preemption = preemption
        self._timer: threading.Timer | None = None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle signals inside the block; an ignored one (`nohup`) stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._handle)
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)

    def interrupted(self, number: int) -> Interrupted:
        """The error that ends the command after this signal."""
        return Interrupted(number, self._exit_code(number))

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        preemption = self._preempted_by(number)
        if self.number is not None:
            if self.number != number or preemption is None:
                self._end_at_once(number, "a second signal arrived")
            return
        self.number = number
        if preemption is not None:
            preemption.begin()
        seconds = _CLEANUP_SECONDS if preemption is None else preemption.grace
        why = f"the cleanup did not end within {seconds:.0f} s"
        self._timer = threading.Timer(seconds, self._end_at_once, args=(number, why))
        self._timer.daemon = True
        self._timer.start()
        self.cancel(_reason(number))

    def _preempted_by(self, number: int) -> Preemption | None:
        """What this signal begins, if it is the one after which the command goes on later."""
        return self._preemption if signal.Signals(number).name == "SIGTERM" else None

    def _exit_code(self, number: int) -> int:
        """The exit code of a preemption, else the one that shells report for a process that a signal ended."""
        preemption = self._preempted_by(number)
        return _EXIT_CODE_BASE + number if preemption is None else preemption.exit_code

    def _end_at_once(self, number: int, why: str) -> None:
        kill_children()
        with suppress(OSError, ValueError):
            cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
            os.write(sys.stderr.fileno(), f"{cursor}Ended at once: {why}.\n".encode())
        os._exit(self._exit_code(number))


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
    signals = _Signals(preemption)
    printing = redirect_stdout(sys.stderr) if keep_stdout else nullcontext()
    with printing, signals.handled(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        task = loop.create_task(coroutine)

        def cancel(reason: str) -> None:
            if preemption is None or not preemption.completed:
                task.cancel(reason)

        signals.cancel = lambda reason: loop.call_soon_threadsafe(cancel, reason)
        try:
            while True:
                try:
                    return loop.run_until_complete(task)
                except (SystemExit, KeyboardInterrupt):
                    if task.done():  # else another task raised it, and the others can continue
                        raise
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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """None, which means asyncio's own loop, where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory

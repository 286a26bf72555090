"""Child processes that run what comes with a model, each request within limits of processor time and memory.

A child stays for the next request. One that reaches a limit is ended and replaced; only its request fails. Processor
time is counted, so a busy machine ends nothing. A second child starts only once a request has waited for the first.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from nat.errors import ModelCodeStopped
from nat.sandbox.frames import OUT_OF_MEMORY, frame, receive
from nat.secrets import redact
from nat.wire.json import without_surrogates

SECONDS = 10.0
"""Processor time of a request."""
LOADING_SECONDS = 60.0
"""Processor time to read a tokenizer."""
MEMORY_BYTES = 2 * 2**30
"""Address space of a child."""
MAX_ANSWER_BYTES = 64 * 2**20
AT_ONCE = 4
"""Children of one sandbox."""
_PATIENCE_SECONDS = 0.2
"""Wait for a busy child before another one is started, which takes about as long."""
_WALL_FACTOR = 30
"""A child that gets no processor for so many times its limit is stopped, too."""
_KEPT = ("PATH", "HOME", "TZ", "LANG", "LC_ALL", "LC_TIME", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")
_SINGLE = {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Threads would reserve memory for each core, which counts."""
_HINT = "shorten the text; if short ones fail as well, repair the model's files, or use another model"


class SandboxRaised(Exception):
    """What a request ran has raised an error; the text is its description."""


class Sandbox:
    """Up to `at_once` children, started when they are needed; they end with this object. Safe for threads."""

    def __init__(self, *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES, at_once: int = AT_ONCE) -> None:
        self.seconds = seconds
        self._memory_bytes = memory_bytes
        self._at_once = at_once
        self._changed = threading.Condition()
        self._idle: list[_Child] = []
        self._children: set[_Child] = set()
        weakref.finalize(self, _end_all, self._children)

    def start(self) -> None:
        """Start a child without waiting for it."""
        with self._changed:
            if not self._children:
                self._idle.append(self._new_child())

    def call(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        what: str,
        seconds: float | None = None,
        prepare: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Any:
        """The result of a task; `prepare` gives the arguments of `open`, which each child runs once before.

        Raises:
            SandboxRaised: the task raised an error.
            ModelCodeStopped: it reached a limit; `what` names it in the message.

        """
        limit = seconds or self.seconds
        request = _request(task, arguments, limit)
        child = self._take()
        try:
            if prepare is not None and not child.is_prepared:
                child.ask(_request("open", prepare(), LOADING_SECONDS), LOADING_SECONDS)
                child.is_prepared = True
            result = child.ask(request, limit)
        except _NoAnswer as error:
            self._drop(child)
            cause = error.cause or self._cause(child.exit_code, error.seconds)
            raise ModelCodeStopped(f"{what} {cause}", hint=_HINT) from error
        except SandboxRaised:
            self._put_back(child)
            raise
        except BaseException:
            self._drop(child)  # an answer may be under way
            raise
        self._put_back(child)
        return result

    def _take(self) -> "_Child":
        patience = time.monotonic() + _PATIENCE_SECONDS
        with self._changed:
            while True:
                while self._idle:
                    if (child := self._idle.pop()).is_alive:
                        return child
                    child.end()
                    self._children.discard(child)
                wait = patience - time.monotonic()
                if not self._children or (wait <= 0 and len(self._children) < self._at_once):
                    return self._new_child()
                self._changed.wait(wait if wait > 0 else None)

    def _new_child(self) -> "_Child":
        child = _Child(self._memory_bytes)
        self._children.add(child)
        return child

    def _put_back(self, child: "_Child") -> None:
        with self._changed:
            self._idle.append(child)
            self._changed.notify()

    def _drop(self, child: "_Child") -> None:
        child.end()
        with self._changed:
            self._children.discard(child)
            self._changed.notify()

    def _cause(self, exit_code: int, seconds: float) -> str:
        match exit_code:
            case code if code == -signal.SIGPROF:
                return f"took more than {seconds:g} s of processor time"
            case code if code in {OUT_OF_MEMORY, -signal.SIGABRT}:
                return f"needed more than {self._memory_bytes / 2**30:.3g} GiB of memory"
        return f"crashed (exit code {exit_code})"


def _request(task: str, arguments: Mapping[str, Any], seconds: float) -> bytes:
    return frame({"task": task, "arguments": arguments, "seconds": seconds})


class _NoAnswer(Exception):
    """A child has no answer within `seconds` of processor time; `cause` is None if it has ended by itself."""

    def __init__(self, seconds: float, cause: str | None = None) -> None:
        super().__init__(seconds, cause)
        self.seconds = seconds
        self.cause = cause


class _Child:
    """One process and its socket."""

    def __init__(self, memory_bytes: int) -> None:
        self.is_prepared = False
        self._link, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nat.sandbox.child", str(memory_bytes)],
                stdin=other.fileno(),
                stdout=subprocess.DEVNULL,
                env={**{name: os.environ[name] for name in _KEPT if name in os.environ}, **_SINGLE},
                start_new_session=True,  # a Ctrl-C in the terminal is for the parent
            )

    def ask(self, request: bytes, seconds: float) -> Any:
        """The child's answer to a request, which has a limit of so many seconds of processor time.

        Raises:
            SandboxRaised: the task raised an error.
            _NoAnswer: there is none, and the child must be ended.

        """
        self._link.settimeout(_WALL_FACTOR * seconds)
        try:
            self._link.sendall(request)
            answer = receive(self._link, longest=MAX_ANSWER_BYTES)
        except TimeoutError as error:
            raise _NoAnswer(seconds, f"took more than {_WALL_FACTOR * seconds:g} s") from error
        except OverflowError as error:
            raise _NoAnswer(seconds, f"gave more than {MAX_ANSWER_BYTES // 2**20} MiB") from error
        except OSError as error:
            raise _NoAnswer(seconds) from error
        if answer is None:
            raise _NoAnswer(seconds)
        if "raised" in answer:
            raise SandboxRaised(redact(without_surrogates(answer["raised"])))
        return answer["result"]

    @property
    def is_alive(self) -> bool:
        """False if it was killed while it was idle."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int:
        """Of an ended process; negative for a signal."""
        code: int | None = self._process.returncode
        assert code is not None, "it was ended"
        return code

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._link.close()


def _end_all(children: set[_Child]) -> None:
    for child in children:
        child.end()

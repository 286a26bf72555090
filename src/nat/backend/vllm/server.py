"""The vLLM server that samples: a process of ours on a private socket, or one at a URL that the user runs.

vLLM's key does not guard its control routes, which can replace the weights. So our own server listens on a Unix socket
in a folder that only this user can open, and on no port.
"""

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import httpx

from nat.backend.vllm.client import HEALTH, VllmAddress
from nat.errors import EngineFailed
from nat.files import last_lines
from nat.secrets import excerpt
from nat.supervisor import SUPERVISED

logger = logging.getLogger(__name__)

_TAIL_LINES, _START_LINES = 8, 20
"""Lines of the log in an error, so few that the end of the backend's log shows all of it; more before it is ready."""
_SEARCHED_BYTES = 100_000
"""The end of the log that is searched for the cause of an end."""
_SHOWN_CHARS = 300
_POLL_SECONDS = 0.2
_END_SECONDS = 5.0
"""How long a process whose connection broke may take to end."""
_STOP_SECONDS = 20.0
"""Longer than a supervisor takes to end all processes."""
_HEALTH_SECONDS = 5.0
_OUT_OF_MEMORY = (
    "out of memory",
    "OutOfMemoryError",
    "No available memory for the cache blocks",
    "less than desired",
    "less than requested memory",
    "can't allocate memory",
    "larger than the available KV cache memory",
)
"""What vLLM and torch write when memory does not suffice."""
_MEMORY_HINT = (
    "give vLLM less: lower max_seq_length, max_num_seqs, or --gpu-memory-utilization in vllm_args (on a CPU the "
    "variable VLLM_CPU_KVCACHE_SPACE); or train with lora"
)
_CAUSE = re.compile(r"\b\w*(?:Error|Exception): [^\r\n]*")
_WITHOUT_CAUSE = ("See root cause above", "for the root cause")
"""In vLLM's errors when a process of its own could not start, or has ended."""
_SETTINGS = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_NO_USAGE_STATS": "1"}
_NOT_PASSED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_API_KEY")
"""Variables that would select our Python environment in vLLM's, or have it require a key on its private socket."""


class ServerAtUrl:
    """A server that the user runs, with the methods of `OwnServer`."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.address = VllmAddress(url.rstrip("/").removesuffix("/v1"), api_key=api_key)
        self.place = f"at {self.address.base_url}"

    def start(self) -> None:
        """Check that it answers."""
        with self.address.client() as http:
            try:
                http.get(HEALTH, timeout=_HEALTH_SECONDS).raise_for_status()
            except httpx.HTTPError as error:
                raise EngineFailed(
                    f"no vLLM answers at {self.address.base_url}: {error!r}",
                    hint="start it, and check vllm_url; or set vllm_command, so that it is started here",
                ) from error

    def restart(self) -> None:
        raise EngineFailed(
            f"vLLM at {self.address.base_url} cannot be used any more, since an update of its weights failed half-way",
            hint="restart that server, then resume the run from its last checkpoint",
        )

    def watch(self, on_end: Callable[[EngineFailed], None]) -> None:
        """Nothing is watched: each call reports its own failure."""

    def explain(self, error: httpx.HTTPError) -> EngineFailed:
        return EngineFailed(
            f"vLLM at {self.address.base_url} does not answer: {error!r}",
            hint="look at that server's log, and start it again",
        )

    def stop(self) -> None:
        """It goes on running, as the user started it."""


class OwnServer:
    """A process that is started here; a supervisor ends it and its processes with this one."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        timeout: float,
        folder: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`folder` is this user's alone, with a path short enough for a socket; `variables` are the environment's."""
        self._variables = variables
        self.place = " ".join(f"on {name}={value}" for name, value in variables.items()) or "on the first of these"
        self._socket = folder / "vllm.sock"
        self.address = VllmAddress("http://vllm", socket=str(self._socket))
        self._command = [*command, "--uds", str(self._socket)]
        self._log_path = log_path
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._code: Future[int] = Future()
        """The exit code, negative for a signal."""
        self._log_start = 0
        self._on_end: Callable[[EngineFailed], None] = lambda _: None

    def start(self) -> None:
        """Wait until it answers."""
        if sys.platform != "linux":
            raise EngineFailed("the backend starts a vLLM on Linux only", hint="start it yourself, and set vllm_url")
        if shutil.which(self._command[0]) is None:
            raise EngineFailed(
                f"there is no executable {self._command[0]!r}",
                hint="install vLLM in an environment of its own, and set vllm_command to its program, such as "
                "'/opt/vllm/bin/vllm serve'",
            )
        logger.info("starting vLLM; its log is %s", self._log_path)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
        with self._log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                [*SUPERVISED, os.devnull, "-", *self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**kept, **_SETTINGS, **self._variables},
                start_new_session=True,
            )
        process, code = self._process, Future[int]()
        self._code = code
        threading.Thread(target=_wait, args=(process, code), name="vllm watch", daemon=True).start()
        self._await_health(code)

        def ended(code: Future[int]) -> None:
            if process is self._process:  # nobody stopped it
                self._on_end(self._ended(code.result()))

        code.add_done_callback(ended)

    def restart(self) -> None:
        """Start it again with the weights of its first start; raises as `start` does."""
        logger.warning("restarting vLLM")
        self.stop()
        self.start()

    def watch(self, on_end: Callable[[EngineFailed], None]) -> None:
        """Call `on_end`, from another thread, when it ends although nobody stopped it."""
        self._on_end = on_end

    def explain(self, error: httpx.HTTPError) -> EngineFailed:
        if self._process is None:
            return EngineFailed(f"vLLM was stopped: {error!r}", hint="start the run again")
        try:
            return self._ended(self._code.result(_END_SECONDS))
        except TimeoutError:
            return EngineFailed(
                f"vLLM does not answer: {error!r}; the end of its log:\n{last_lines(self._log(), _TAIL_LINES)}",
                hint="start the run again",
            )

    def stop(self) -> None:
        """End all of its processes."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None, "a pipe"
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._socket.unlink(missing_ok=True)

    def _await_health(self, code: Future[int]) -> None:
        deadline = time.monotonic() + self._timeout
        with self.address.client() as http:
            while time.monotonic() < deadline:
                if code.done():
                    self.stop()
                    raise self._ended(code.result(), starting=True)
                with socket.socket(socket.AF_UNIX) as unix:  # the client would leave one open where nobody listens
                    listens = unix.connect_ex(str(self._socket)) == 0
                with suppress(httpx.TransportError):  # it is busy loading
                    if listens and http.get(HEALTH, timeout=_HEALTH_SECONDS).is_success:
                        return
                time.sleep(_POLL_SECONDS)
        self.stop()
        raise EngineFailed(
            f"vLLM was not ready within {self._timeout:.0f} s; the end of its log:\n"
            f"{last_lines(self._log(), _START_LINES)}",
            hint="raise vllm_startup_timeout, or startup_timeout of the LLM, if it was still loading",
        )

    def _ended(self, code: int, *, starting: bool = False) -> EngineFailed:
        log = self._log()
        was_killed = code in {-signal.SIGKILL, 128 + signal.SIGKILL}
        errors = [] if was_killed else list(_CAUSE.finditer(log))
        causes = [error for error in errors if not any(text in error[0] for text in _WITHOUT_CAUSE)]
        how = "was killed (SIGKILL)" if was_killed else f"ended with exit code {code}"
        cause = f" ({excerpt(causes[-1][0], _SHOWN_CHARS)})" if causes else ""
        if causes and not starting:  # what follows is how its other processes ended
            tail = f"its log up to there:\n{last_lines(log[: causes[-1].end()], _TAIL_LINES)}"
        else:
            tail = f"the end of its log:\n{last_lines(log, _START_LINES if starting else _TAIL_LINES)}"
        message = f"vLLM {how}{' before it was ready' if starting else ''}{cause}; {tail}"
        if any(text in cause for text in _OUT_OF_MEMORY):
            return EngineFailed(message, hint=_MEMORY_HINT)
        if starting:
            return EngineFailed(
                message, hint=f"the whole log is {self._log_path}; an unknown option means another version of vLLM"
            )
        killed = "if memory ran out, the system's log says so (dmesg); " if was_killed else ""
        return EngineFailed(message, hint=f"{killed}checkpoints are complete: start the run again")

    def _log(self) -> str:
        with self._log_path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _SEARCHED_BYTES))
            return log.read().decode(errors="replace")


VllmServer = ServerAtUrl | OwnServer


def _wait(process: subprocess.Popen[bytes], code: Future[int]) -> None:
    assert process.stdout is not None, "a pipe"
    with process.stdout:
        kind, _, number = process.stdout.read().partition(b" ")
    process.wait()
    code.set_result(int(number) if kind == b"exit" else -signal.SIGKILL)

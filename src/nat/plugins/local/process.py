"""The embedded backend as a child process: started on a free loopback port, watched, and stopped at the end."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pydantic import SecretStr

from nat.builder.child_processes import known_child, python_module
from nat.config.secrets import without_secrets
from nat.errors import BackendError, BackendUnreachable
from nat.files import log_tail, private_log
from nat.secrets import known_secrets, new_key
from nat.wire.serving import FAILED, NOTICE, READY, ServeOptions, handover

logger = logging.getLogger(__name__)

_STOP_SECONDS = 60.0
"""In which it may save its last weights."""
_LAST_WORDS_SECONDS = 1.0
_KEPT_BYTES = 65536
_STOPPED = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes after SIGTERM: while it serves, while it starts, and before it handles signals."""


class BackendProcess:
    """A running backend, reached at `base_url` with `api_key`."""

    def __init__(self, process: asyncio.subprocess.Process, *, port: int, api_key: str, log_path: Path) -> None:
        self._process = process
        self.base_url = f"http://127.0.0.1:{port}"
        self.api_key = api_key
        self.log_path = log_path
        self.printed = b""
        """Its last line, which may say why it ended."""

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def check(self) -> None:
        """Raise BackendUnreachable if the process has ended, with its own reason or else the tail of the log."""
        if not self.alive:
            raise _died(self._process, self.log_path, self.printed)

    async def stop(self) -> None:
        """Stop the process, and log a bad exit code: saving the last weights may have failed."""
        if self.alive and await _stopped(self._process) and self._process.returncode not in _STOPPED:
            logger.error(
                "The backend ended with exit code %s when it was stopped; the end of its log:\n%s",
                self._process.returncode,
                log_tail(self.log_path),
            )


@asynccontextmanager
async def running_backend(
    options: ServeOptions,
    *,
    log_path: Path,
    startup_timeout: float,
    command: Sequence[str] = python_module("nat.backend"),
) -> AsyncIterator[BackendProcess]:
    """Start `command` with `options` and a new key, wait for its ready line, and stop it at the end of the block.

    The options are sent through stdin, since other processes of the user can read an environment. The child ends when
    its stdin closes, which happens even if this process is killed. It has its own session, so that a Ctrl-C in the
    terminal reaches only this process, which stops it.

    Raises:
        BackendError: it cannot start; with its message.
        BackendUnreachable: it ended, or was not ready within `startup_timeout` seconds; with the tail of its log.

    """
    api_key = new_key()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with private_log(log_path) as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            "0",  # stdin's descriptor
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**without_secrets(os.environ), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    with known_child(process.pid):
        try:
            own = options.model_copy(update={"api_key": SecretStr(api_key), "exit_with_parent": True})
            assert process.stdin is not None, "a pipe"
            process.stdin.write(handover(own, known_secrets.values()))
            with suppress(ConnectionError):  # it has ended already, which its log explains
                await process.stdin.drain()
            port = await _ready_port(process, log_path, startup_timeout)
            backend = BackendProcess(process, port=port, api_key=api_key, log_path=log_path)
            logger.info("Backend ready at %s (log: %s)", backend.base_url, log_path)
            async with _drained(backend, process.stdout):
                try:
                    yield backend
                finally:
                    await backend.stop()
        finally:
            if process.returncode is None:  # it was still starting, and removes what it has made
                await _stopped(process)


async def _stopped(process: asyncio.subprocess.Process) -> bool:
    """Close the process's stdin and send SIGTERM; False if it hangs and is killed."""
    if process.stdin is not None:
        process.stdin.close()
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        logger.warning("The backend did not stop within %g s and is killed", _STOP_SECONDS)
        return False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return True


async def _ready_port(process: asyncio.subprocess.Process, log_path: Path, timeout_s: float) -> int:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            async for line in process.stdout:
                event = _event(line)
                if event.get("event") == READY:
                    return int(event["port"])
                if event.get("event") == FAILED:
                    await process.wait()
                    raise BackendError(f"the backend cannot start: {event['message']}", hint=f"{event['hint'] or ''}")
            await process.wait()
    except TimeoutError:
        raise BackendUnreachable(
            f"the backend was not ready within {timeout_s:.0f} s; the end of {log_path}:\n{log_tail(log_path)}",
            hint="raise `startup_timeout` in the LLM's block, or fix what the log reports",
        ) from None
    raise _died(process, log_path)


def _event(line: bytes) -> dict[str, str | int]:
    """A line of the child's stdout as an event, a notice passed on; empty for the output of libraries."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(event, dict):
        return {}
    if event.get("event") == NOTICE:
        logger.warning("%s", event["message"])
    return event


def _died(process: asyncio.subprocess.Process, log_path: Path, last_line: bytes = b"") -> BackendUnreachable:
    code = process.returncode
    ended = f"the backend has ended with exit code {code} (process {process.pid})"
    event = _event(last_line)
    if event.get("event") == FAILED:
        return BackendUnreachable(f"{ended}: {event['message']}", hint=f"{event['hint'] or ''}")
    name = "" if code is None or code >= 0 else signal.Signals(-code).name
    hint = f"{name} ended it; start again" if name else "fix what the log reports"
    if name == "SIGKILL":
        hint = (
            "the system has killed it, usually because the machine ran out of memory: lower micro_batch_tokens, "
            "max_seq_length, max_num_seqs, kv_cache_mb or prefix_cache_mb, or train with lora"
        )
    return BackendUnreachable(f"{ended}; the end of {log_path}:\n{log_tail(log_path)}", hint=hint)


@asynccontextmanager
async def _drained(backend: BackendProcess, stream: asyncio.StreamReader | None) -> AsyncIterator[None]:
    """Read the child's output, so that it never blocks on a full pipe: pass notices on, and keep the last line."""

    async def read() -> None:
        rest = b""
        while stream is not None and (part := await stream.read(_KEPT_BYTES)):
            *lines, rest = (rest + part)[-_KEPT_BYTES:].split(b"\n")
            for line in lines:
                _event(line)
            backend.printed = rest or (lines or [b""])[-1]

    reader = asyncio.create_task(read())
    try:
        yield
    finally:  # the child has ended, so its last words are there; a process that it left may hold the pipe open
        await asyncio.wait({reader}, timeout=_LAST_WORDS_SECONDS)
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader

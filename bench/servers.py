"""Servers that answer chats with one checkpoint: the embedded backend, and vLLM in an environment of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from conformance.engines.vllm import MODULE
from conformance.environments import outside

from nat.secrets import new_key

NAT = "from nat.cli.main import run_cli; run_cli()"
START_SECONDS = 300.0
VLLM_CACHE_GB = 2
"""Memory that vLLM reserves for keys and values."""


@dataclass(frozen=True)
class Server:
    """A running server of the model `bench` at 127.0.0.1."""

    pid: int
    port: int
    api_key: str


@dataclass(frozen=True)
class Limits:
    """Bounds that every server of a comparison gets."""

    dtype: str
    chats: int
    """Chats that run at the same time."""
    length: int
    """Most tokens of prompt plus answer."""


@contextmanager
def our_backend(model: Path, limits: Limits, options: Sequence[str] = ()) -> Iterator[Server]:
    """Start the embedded backend as a user does; it ends when its stdin closes."""
    key = new_key()
    command = [
        sys.executable,
        "-c",
        NAT,
        "backend",
        "serve",
        f"--model={model}",
        "--served_model_name=bench",
        "--port=0",
    ]
    command += [f"--dtype={limits.dtype}", f"--max_num_seqs={limits.chats}", f"--max_seq_length={limits.length}"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--exit_with_parent", *options],
            env=os.environ | {"NAT_BACKEND_API_KEY": key},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None, "asked for pipes"
        assert process.stdout is not None, "likewise"
        try:
            ready = next((line for line in process.stdout if line.startswith("{")), "{}")
            if "port" not in json.loads(ready):
                raise SystemExit(f"the backend did not start:\n{_end(log.fileno())}")
            yield Server(process.pid, int(json.loads(ready)["port"]), key)
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(60)


@contextmanager
def vllm(model: Path, limits: Limits, python: Path) -> Iterator[Server]:
    """Start vLLM on all cores, and wait until it has answered that it is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", MODULE, "--host=127.0.0.1", f"--port={port}"]
    command += [f"--model={model}", "--served-model-name=bench", f"--dtype={limits.dtype}", "--enforce-eager"]
    command += [f"--max-model-len={limits.length}", f"--max-num-seqs={limits.chats}"]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": str(VLLM_CACHE_GB),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**outside(), **settings}, start_new_session=True
        )
        try:
            _await_health(port, process, log.fileno())
            yield Server(process.pid, port, "none")
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):  # a busy engine may take no notice of the first
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.wait(60)


def _await_health(port: int, process: subprocess.Popen[bytes], log: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        time.sleep(0.5)
    raise SystemExit(f"vLLM did not start within {START_SECONDS:.0f} s; the end of its log:\n{_end(log)}")


def _end(log: int) -> str:
    size = os.fstat(log).st_size
    return os.pread(log, 4000, max(0, size - 4000)).decode(errors="replace")

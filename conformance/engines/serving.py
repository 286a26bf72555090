"""A vLLM server that serves a model, as the documentation says."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from conformance.engines.vllm import vllm_command

from fakes.processes import free_port

START_S = 900


@contextmanager
def serving(model: Path, *more: str) -> Iterator[str]:
    """Serve a model as the documentation says; lends the server's address."""
    port = free_port()
    arguments = ["--model", str(model), "--port", str(port), "--dtype", "float32", "--max-model-len", "128", *more]
    with subprocess.Popen([*vllm_command().split(), *arguments]) as process:
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
            while not _answers(f"{url}/health"):
                assert process.poll() is None, "vLLM has ended"
                assert time.monotonic() < deadline, f"vLLM did not start within {START_S} s"
                time.sleep(1)
            yield url
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False

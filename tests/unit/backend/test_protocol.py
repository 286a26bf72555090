"""A plug-in adds a protocol to the backend through an entry point."""

import json
import os
import signal

import httpx
import pytest

from fakes.processes import DEADLINE, NAT, Processes, first_line
from fakes.tiny_model import make_tiny_model

SERVE = ("-c", NAT, "backend", "serve")
OPTIONS = '''
from nat.wire.serving import ServeOptions

OTHER = "of another kind"

class EchoOptions(ServeOptions):
    switch = "echo_port"
    opener = "echo_server:open_echo"
    well_known_key = "echo"

    echo_port: int
    """Serve clients of Echo on this port, too."""

    @property
    def ports(self):
        return {**super().ports, "echo_port": self.echo_port}
'''
SERVER = """
from contextlib import contextmanager
from fastapi import APIRouter
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.model_loader import load_model
from nat.backend.protocol import Opened

@contextmanager
def open_echo(options, endpoint):
    worker = Worker(Engine(load_model(options.model), policy_version=options.name))
    router = APIRouter()

    @router.get("/echo/{text}")
    async def echo(text: str):
        return {"text": text, "model": options.name, "ports": endpoint.ports}

    try:
        yield Opened(worker, [router], greeting=f"Echo listens; the key is {endpoint.api_key}")
    finally:
        worker.close()
        print("Echo has closed", flush=True)
"""


@pytest.fixture
def environment(tmp_path):
    """An environment with the package `echo`; two of its three protocols cannot be imported."""
    broken = "broken = echo_nowhere:BrokenOptions\nwrong = echo_options:OTHER\n"
    info = tmp_path / "echo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[nat.backend.protocols]\necho = echo_options:EchoOptions\n" + broken)
    (tmp_path / "echo_options.py").write_text(OPTIONS)
    (tmp_path / "echo_server.py").write_text(SERVER)
    kept = {name: value for name, value in os.environ.items() if name != "NAT_BACKEND_API_KEY"}
    return {**kept, "PYTHONPATH": str(tmp_path)}


def test_the_backend_serves_a_protocol_that_it_does_not_know(environment, tmp_path):
    """A plug-in's option selects it, its port is in the ready line, its routes are beside OpenAI's, and it is closed.

    Protocols that cannot be imported are reported and change nothing else.
    """
    model = make_tiny_model(tmp_path / "tiny")
    command = [*SERVE, "--model", str(model), "--port", "0", "--echo_port", "0", "--threads", "1"]
    with Processes() as processes:
        process = processes.start(*command, env=environment)
        ready = json.loads(first_line(process))
        with httpx.Client(base_url=f"http://127.0.0.1:{ready['echo_port']}", trust_env=False, timeout=DEADLINE) as http:
            answer = http.get("/echo/hello").json()
            body = {"model": "tiny", "prompt": [5, 6], "max_tokens": 1}
            sampled = http.post("/v1/completions", json=body, headers={"Authorization": "Bearer echo"})
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=DEADLINE)
    assert answer == {
        "text": "hello",
        "model": "tiny",
        "ports": {name: ready[name] for name in ("port", "echo_port")},
    }
    assert sampled.json()["usage"]["completion_tokens"] == 1
    assert "Echo listens; the key is echo" in log
    assert "skipped the protocol 'broken': echo_nowhere:BrokenOptions is ModuleNotFoundError(" in log
    assert "skipped the protocol 'wrong': echo_options:OTHER is 'of another kind', not" in log
    assert (out, process.returncode) == ("Echo has closed\n", 0)


def test_its_options_are_offered_and_checked(environment, tmp_path):
    """The command line shows the plug-in's options without torch; its checks run beside the backend's own."""
    with Processes() as processes:
        process = processes.start(*SERVE, "--help", env=environment)
        assert "Serve clients of Echo on this port, too." in process.communicate(timeout=DEADLINE)[0]
        process = processes.start(*SERVE, "--model", str(tmp_path), "--echo_port", "many", env=environment)
        assert "echo_port" in process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 2

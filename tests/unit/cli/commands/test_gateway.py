"""`nat gateway serve`."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner

from nat.cli.commands.gateway import serve_command
from nat.errors import ConfigError

LLM = {"_type": "openai", "model_name": "m", "base_url": "http://127.0.0.1:9/v1", "api_key": "k"}


@pytest.fixture
def config_file(tmp_path):
    file = tmp_path / "config.yml"
    file.write_text(json.dumps({"llms": {"student": LLM}}))
    return str(file)


def test_a_public_host_needs_a_chosen_key(config_file):
    """A generated key is in the log, which is not enough where others can connect."""
    result = CliRunner().invoke(serve_command, ["--config_file", config_file, "--host", "0.0.0.0"])
    assert isinstance(result.exception, ConfigError)
    assert "NAT_GATEWAY_API_KEY" in str(result.exception)


def test_a_taken_port_is_an_error(config_file):
    """The error has the port and a remedy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(serve_command, ["--config_file", config_file, "--port", port])
    assert isinstance(result.exception, ConfigError)
    assert f"--port {port}: cannot listen there" in str(result.exception)


@pytest.mark.parametrize("given", [None, "mine"])
def test_it_runs_until_it_is_stopped(config_file, given):
    """It prints its address, and its key only if it generated it; SIGTERM ends it with exit code 0."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NAT_")}
    if given is not None:
        environment["NAT_GATEWAY_API_KEY"] = given
    command = [sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()"]
    command += ["gateway", "serve", "--config_file", config_file, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with process:
        try:
            said = "".join(process.stdout.readline() for _ in range(2))
            url = re.search(r"POST (\S+)/rollouts", said)[1]
            key = given or re.search(r"the key (\S+)", said)[1]
            opened = httpx.post(f"{url}/rollouts", headers={"authorization": f"Bearer {key}"})
        finally:
            process.send_signal(signal.SIGTERM)
    assert opened.status_code == 201
    assert process.returncode == 0
    assert "mine" not in said

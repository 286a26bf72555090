"""A `react_agent` of the released toolkit, with a tool of an MCP server, is trained through the gateway."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from conformance.environments import REPOSITORY, outside, python_of

from e2e.doc_pages import Page
from fakes.processes import free_port

HERE = Path(__file__).parent
AGENT = HERE / "agent"
CONFIG = HERE / "finetune.yml"
NAT = Path(sys.executable).with_name("nat")
PAGE = REPOSITORY / "docs" / "from" / "nat.md"
NUM_EPOCHS = 3
"""Fewer than the YAML's, and enough for an improvement."""
DEADLINE_S = 900


@contextmanager
def toolkit_server(gateway_port: int, log: Path) -> Iterator[str]:
    """The chat route of the toolkit's `nat serve`; its model is at the gateway's port."""
    port = free_port()
    binaries = python_of("toolkit").parent
    env = outside() | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{gateway_port}/v1",
        "OPENAI_API_KEY": "none",
    }
    command = [binaries / "nat", "serve", "--config_file=agent.yml", f"--port={port}"]
    with log.open("wb") as writes:
        server = subprocess.Popen(command, cwd=AGENT, env=env, stdout=writes, stderr=writes, start_new_session=True)
    try:
        _await_health(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1/chat/completions"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)  # its MCP server, too
        server.wait()


def _await_health(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text()
        with suppress(httpx.TransportError):
            if httpx.get(url, trust_env=False).is_success:
                return
        time.sleep(0.2)
    pytest.fail(f"{url} does not answer: {log.read_text()}")


def nat(*arguments: str | Path) -> dict[str, Any]:
    """The JSON that our command prints."""
    run = subprocess.run(
        [NAT, *arguments],
        cwd=REPOSITORY,
        env=outside() | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return json.loads(run.stdout)


def test_an_unmodified_react_agent_improves(tmp_path: Path) -> None:
    """Two processes that share a base URL; trained, the agent answers more held-out questions at its temperature 0."""
    gateway_port = free_port()
    with toolkit_server(gateway_port, tmp_path / "toolkit.log") as url:
        overrides = {
            "workflow.url": url,
            "workflow.gateway_port": gateway_port,
            "finetuning.num_epochs": NUM_EPOCHS,
            "finetuning.output_dir": tmp_path / "run",
        }
        options = [str(word) for pair in overrides.items() for word in ("-o", *pair)]
        summary = nat("finetune", "--json", "--config_file", CONFIG, *options)
    assert summary["verdict"] == "improved"
    assert summary["after"] > summary["before"]
    assert summary["broken_by"] == {}, "each rollout is one row"


def test_a_process_per_example(tmp_path: Path) -> None:
    """`_type: command` runs the same agent, each time in a new process of the toolkit's environment."""
    data = tmp_path / "two.jsonl"
    data.write_text("\n".join((HERE / "data" / "validation.jsonl").read_text().splitlines()[:2]))
    python = python_of("toolkit")
    config = yaml.safe_load(CONFIG.read_text())
    config["workflow"] = {
        "_type": "command",
        "llm": "student",
        "command": ["python", "ask.py"],
        "folder": str(AGENT),
        "env": {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
    }
    config["eval"]["general"]["output_dir"] = str(tmp_path / "eval")
    (tmp_path / "command.yml").write_text(json.dumps(config))
    report = nat("eval", "--json", "--config_file", tmp_path / "command.yml", "--dataset", data)
    items = json.loads((tmp_path / "eval" / "right_platform_output.json").read_text())["eval_output_items"]
    assert [item["error"] for item in items] == [None, None], report


def test_the_page_shows_the_tested_agent() -> None:
    """The agent's YAML on the page is that of this test."""
    [shown] = [block.text for block in Page(PAGE).blocks if block.file_name == "agent.yml"]
    assert shown == (AGENT / "agent.yml").read_text()

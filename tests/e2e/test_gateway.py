"""A program as workflow, from the command to the report."""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes import command_program
from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer, SeenRequest
from fakes.processes import NAT, Processes, await_end, ended


def say(request: SeenRequest) -> Say:
    return Say({"short": "abc", "long": "abcdefgh", "bad": "crash"}[request.last_text])


async def test_an_evaluation_of_a_program(tmp_path):
    """Tasks reach the program as files; its answers and rewards are read back; a program that crashes has no score."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "agent.py").write_text(command_program.agent(score="len(said) / 10"))
    rows = [{"id": name, "question": {"ask": name}, "answer": ""} for name in ("short", "long", "bad")]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    async with OpenAIServer(say) as server:
        report = await evaluated(tmp_path, server)
    scores = {item["id"]: item["score"] for item in report["own"]["eval_output_items"]}
    assert scores == {"short": 0.3, "long": 0.8}
    assert [body["messages"][-1]["content"] for body in server.bodies].count("bad") == 1
    kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "eval" / "folders").iterdir())
    assert kept == ["bad#0", "long#0", "short#0"]


async def evaluated(folder: Path, server: OpenAIServer) -> dict[str, Any]:
    """The reports of `nat eval`, by evaluator."""
    config = {
        "llms": {"student": {"_type": "openai", "base_url": server.base_url, "api_key": "k", "model_name": "tiny"}},
        "workflow": {**command_program.WORKFLOW, "keep_folder": True},
        "eval": {
            "general": {"dataset": {"_type": "json", "file_path": "data.json"}, "output_dir": "eval"},
            "evaluators": {"own": {"_type": "command_reward"}},
        },
    }
    (folder / "config.yml").write_text(json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()", "eval", "--config_file=config.yml"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    found = reports(folder / "eval")
    assert "own" in found, said.decode()
    return found


def reports(folder: Path) -> dict[str, Any]:
    return {path.stem.removesuffix("_output"): json.loads(path.read_text()) for path in folder.glob("*_output.json")}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="waits for the end of another's child")
def test_a_killed_harness_leaves_no_program_behind(tmp_path):
    """Even after SIGKILL of the harness, the program and its child processes end."""
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    program = f"(sh -c 'echo \\$\\$ > {pid}; exec sleep 600' &); sleep 600"
    path = tmp_path / "config.yml"
    workflow = {"_type": "command", "llm": "student", "command": program}
    with Processes() as processes, socket.create_server(("127.0.0.1", 0)) as listener:  # a model that is slow to answer
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server = {"_type": "openai", "model_name": "m", "base_url": url, "api_key": "k"}
        path.write_text(json.dumps({"llms": {"student": server}, "workflow": workflow}))
        harness = processes.start("-c", NAT, "run", f"--config_file={path}", "--input=x")
        program_pid = int(pid.read_text())
        assert not ended(program_pid)
        harness.kill()
        await_end(program_pid)

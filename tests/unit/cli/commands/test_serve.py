"""`nat serve`, and `nat eval --endpoint` against it."""

import asyncio
import json
import socket

import pytest
from click.testing import CliRunner

from fakes.scripted_workflow import ScriptedWorkflow
from fakes.served_workflow import serving, url_of
from nat.cli.commands import serve as serve_module
from nat.cli.commands.eval import eval_command
from nat.cli.commands.serve import serve_command
from nat.errors import BackendUnreachable, ConfigError
from nat.front_end.options import FrontEndOptions
from nat.front_end.serve import serve

ROWS = [{"id": "a", "question": "one", "answer": "one!"}, {"id": "b", "question": "two", "answer": "2"}]


async def shout(question):
    return f"{question}!"


def invoked(scripted: ScriptedWorkflow, command, *arguments: str):
    with scripted.registered():
        return CliRunner().invoke(command, ["--config_file", str(scripted.config_file), *arguments])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--host", "0.0.0.0"), "needs a key that you set: NAT_SERVE_API_KEY"),
        (("--host", "0.0.0.0", "--api_key", ""), "api_key"),
    ],
)
def test_a_public_host_without_a_key_is_refused(tmp_path, arguments, told):
    """The error comes before anything is opened."""
    scripted = ScriptedWorkflow(tmp_path, shout, ROWS)
    result = invoked(scripted, serve_command, *arguments)
    assert isinstance(result.exception, ConfigError)
    assert told in str(result.exception)
    assert scripted.built == 0


def test_a_taken_port_is_an_error_at_once(tmp_path):
    """The error comes before the workflow is opened, which may take long."""
    scripted = ScriptedWorkflow(tmp_path, shout, ROWS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = invoked(scripted, serve_command, "--host", "127.0.0.1", "--port", str(port))
    assert isinstance(result.exception, ConfigError)
    assert f"--port {port}: cannot listen there: Address already in use" in str(result.exception)
    assert scripted.built == 0


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    """The server's packages are optional; the error names the extra that installs them."""
    monkeypatch.setattr(serve_module, "_NEEDED", ("fastapi", "no_such_package"))
    result = invoked(ScriptedWorkflow(tmp_path, shout, ROWS), serve_command)
    assert isinstance(result.exception, ConfigError)
    assert "no_such_package: not installed" in str(result.exception)
    assert "pip install 'nat-finetuning-harness[serve]'" in str(result.exception)


async def test_overrides_and_shutdown(tmp_path):
    """`-o` has its effect; the printed address answers; when the server ends, the workflow is closed."""
    scripted = ScriptedWorkflow(tmp_path, shout, ROWS)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with scripted.registered():
        options = FrontEndOptions(port=0)
        serving = serve(scripted.config_file, (("workflow.tone", "loud"),), options, ready.set_result)
        task = asyncio.create_task(serving)
        result = await _evaluated(scripted, await ready)
        task.cancel()
        await asyncio.wait([task])
    assert result.exit_code == 0, result.exception
    assert scripted.tones == ["loud"]
    assert (scripted.built, scripted.closed) == (1, 1)


async def _evaluated(scripted: ScriptedWorkflow, url: str, *more: str):
    """Run the command in a thread, because it starts its own event loop."""
    command = ["--config_file", str(scripted.config_file), "--endpoint", url, *more]
    return await asyncio.to_thread(CliRunner().invoke, eval_command, command)


async def test_an_evaluation_of_a_served_workflow(tmp_path):
    """The scores equal those in this process, and nothing is built here."""
    scripted = ScriptedWorkflow(tmp_path, shout, ROWS)
    async with serving(scripted) as client:
        result = await _evaluated(scripted, url_of(client), "--json")
    assert result.exit_code == 0, result.exception
    record = json.loads(result.stdout)
    assert (record["rollouts"], record["failed"]) == (2, 0)
    assert record["evaluators"][0]["average_score"] == 0.5
    assert scripted.built == 1


async def test_a_remote_rollout_has_a_time_limit(tmp_path):
    """`--endpoint_timeout` limits a rollout and is named in its failure."""

    async def hangs(question):
        await asyncio.Event().wait()

    scripted = ScriptedWorkflow(tmp_path, hangs, ROWS)
    async with serving(scripted) as client:
        result = await _evaluated(scripted, url_of(client), "--endpoint_timeout", "1")
    assert "no answer within 1 s (--endpoint_timeout)" in str(result.exception)


async def test_a_dead_endpoint_is_an_error_at_once(tmp_path):
    """The error comes before the first rollout."""
    scripted = ScriptedWorkflow(tmp_path, shout, ROWS)
    with scripted.registered():
        result = await _evaluated(scripted, "http://127.0.0.1:9")
    assert isinstance(result.exception, BackendUnreachable)
    assert "no served workflow answers at http://127.0.0.1:9" in str(result.exception)

"""A server that dies during rollouts ends the run, although clients would go on to retry."""

import asyncio

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.errors import BackendUnreachable
from nat.finetuning import health
from nat.runs.records import RunState


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Shorter waits; a refused connection is still tried again."""
    monkeypatch.setattr(health, "_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(health, "_REFUSING_SECONDS", 0.1)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.mark.parametrize("external", [False, True], ids=["own process", "external server"])
async def test_a_server_that_dies_during_rollouts_ends_the_run(tmp_path, external):
    """Rollouts that would wait for minutes are abandoned, and the error says which server has died."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        if external:
            project.config["llms"]["student"] |= {"_type": "openai", "max_retries": 100}

        async def agent(question, ask):
            if len(project.adapter.submitted) < 1:
                return await ask(question)
            if external:
                await server.die()
                return await ask(question)
            project.providers[0].error = BackendUnreachable("the backend has ended", hint="see its log")
            await asyncio.sleep(600)
            return ""

        project.agent = agent
        with project.registered(), pytest.raises(BackendUnreachable) as raised:
            await project.run()
    expected = "llms.student.base_url: no server answers at" if external else "the backend has ended"
    assert expected in str(raised.value)
    with project.journal() as journal:
        assert journal.info().state is RunState.FAILED
        assert expected in (journal.info().message or "")

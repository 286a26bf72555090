"""A server that dies during rollouts ends run, probe and evaluation, although clients would go on to retry."""

import asyncio
import time

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.data_models.evaluate_runtime import EvaluationRunConfig
from nat.errors import BackendUnreachable
from nat.eval.evaluate import EvaluationRun
from nat.rollout import server_watch
from nat.runs.records import RunState


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Shorter waits."""
    monkeypatch.setattr(server_watch, "_WATCH_SECONDS", 0.05)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.mark.parametrize("external", [False, True], ids=["own process", "external server"])
async def test_a_server_that_dies_during_rollouts_ends_the_run(tmp_path, external):
    """Rollouts that would wait for minutes are abandoned, and the error says which server has died."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        if external:
            project.config["llms"]["student"] |= {"_type": "openai", "max_retries": 100}
            project.config["eval"]["general"]["outage_timeout"] = 0.2

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
    expected = "the server of LLM 'student'" if external else "the backend has ended"
    assert expected in str(raised.value)
    with project.journal() as journal:
        assert journal.info().state is RunState.FAILED
        assert expected in (journal.info().message or "")


async def evaluated(given):
    await EvaluationRun(EvaluationRunConfig(config_file=given.config_file)).run_and_evaluate()


async def test_code_that_blocks_the_event_loop_is_told(tmp_path, monkeypatch, caplog):
    """No other rollout advances meanwhile, and no deadline fires."""
    monkeypatch.setattr(server_watch, "_LATE_SECONDS", 0.1)
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)

        async def agent(question, ask):
            await asyncio.sleep(0.1)
            time.sleep(0.5)  # noqa: ASYNC251 - the mistake
            return await ask(question)

        project.agent = agent
        with project.registered():
            await evaluated(project.given())
    assert "the event loop has been blocked for" in caplog.text

"""A server or an agent that misbehaves for one example costs a run the rollouts of that example, and nothing else."""

import asyncio
from dataclasses import replace

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import HangUp, OpenAIServer, Raw, Refuse
from fakes.tiny_fixtures import mostly_slow
from nat.runs.records import Phase, RunState

BAD = "q0"
"""The question of the example."""
RETRIES = 1
SOON = {"retry-after-ms": "1"}
HTML = b"<html><body>502 Bad Gateway</body></html>"
CUT_OFF = Raw.body(b'{"id": "x", "choices": [', length=900)

ANSWERS = {
    "429": Refuse(429, "slow down", SOON),
    "500": Refuse(500, headers=SOON),
    "no answer": Raw(b"", hangs=True),
    "a body that hangs": replace(CUT_OFF, hangs=True),
    "a body that is cut off": CUT_OFF,
    "a stream in place of a body": Raw.body(b'data: {"choices": []}\n\n', kind="text/event-stream"),
    "a hang-up": HangUp(),
    "no HTTP": Raw(b"\x00\x01garbage\r\n\r\n"),
    "garbage": Raw.body(b"\x80\xff{{"),
    "JSON that is no answer": Raw.body(b'{"choices": null}'),
    "HTML": Raw.body(HTML, kind="text/html"),
}


@pytest.mark.parametrize("reply", mostly_slow(ANSWERS, "429", "500", "a hang-up", "JSON that is no answer", "HTML"))
async def test_a_server_that_answers_badly(tmp_path, reply):
    """The call is repeated so often and no more, its rollouts fail with the cause, and all others are trained."""
    coin = Coin()

    def script(request):
        return ANSWERS[reply] if request.last_text == BAD else coin(request)

    async with OpenAIServer(script) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"] |= {"max_retries": RETRIES, "timeout": 0.5}
        await _trains_without_it(project)
        asked = [request.last_text for request in server.requests]
    assert asked.count(BAD) <= 2 * 2 * (1 + RETRIES)


async def raises(_ask):
    raise RuntimeError("the tool is gone")


async def hangs(_ask):
    await asyncio.sleep(3600)


async def ends_the_process(_ask):
    raise SystemExit(3)


@pytest.mark.parametrize("agent", [raises, hangs, ends_the_process])
async def test_an_agent_that_misbehaves(tmp_path, agent):
    """Its rollouts fail, and all others are trained."""

    async def run(question, ask):
        return await (agent(ask) if question == BAD else ask(question))

    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, run)
        project.config["eval"]["general"]["item_timeout"] = 1.0
        await _trains_without_it(project)


async def _trains_without_it(project):
    project.finetuning["max_failure_rate"] = 0.5
    with project.registered():
        await project.run()
    with project.journal() as journal:
        assert journal.info().state is RunState.COMPLETED
        for epoch in journal.epochs():
            failed = [each for each in journal.rollouts(Phase.TRAIN, epoch.epoch) if each.error is not None]
            assert {each.example_id for each in failed} == {"000"}
            assert len(failed) == sum(epoch.left_out.values()) == 2
            assert epoch.filtered_trajectories == 6

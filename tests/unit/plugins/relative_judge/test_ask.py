import json

import httpx
import pytest
from openai import AsyncOpenAI, InternalServerError

from fakes.openai_server import OpenAIServer, Refuse, Say
from nat.errors import EvaluationError
from nat.plugins.relative_judge.ask import ClientAsk, ask_for_scores

CODE = "0123456789abcdef"
ENTRIES = [{"attempt": 1, "why": "", "score": 0.25}, {"attempt": 2, "why": "", "score": 1}]
GOOD = json.dumps({"code": CODE, "scores": ENTRIES})
MESSAGES = [{"role": "user", "content": "judge"}]


class Replies:
    """Says one text after the other, and keeps what it was asked."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.asked = []

    async def __call__(self, messages):
        self.asked.append(list(messages))
        return self.texts.pop(0)


def client_of(server):
    client = AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0, http_client=httpx.AsyncClient())
    client.model_name = "m"
    return client


async def test_an_unusable_reply_is_answered_once_with_the_reason():
    """The second request has the first reply and what is wrong with it."""
    ask = Replies("the second", GOOD)
    found = await ask_for_scores(ask, MESSAGES, 2, CODE)
    assert [each.score for each in found] == [0.25, 1]
    assert ask.asked[1][:2] == [*MESSAGES, {"role": "assistant", "content": "the second"}]
    assert "cannot be used: no JSON object with `scores`" in ask.asked[1][2]["content"]


async def test_a_second_unusable_reply_is_a_failure():
    """Nobody is asked a third time, and no score is made up."""
    ask = Replies("the second", f'{{"code": "{CODE}", "scores": []}}', GOOD)
    with pytest.raises(EvaluationError, match=r"no valid scores in two replies: scores are for attempts \[\]"):
        await ask_for_scores(ask, MESSAGES, 2, CODE)
    assert len(ask.asked) == 2


async def test_the_reply_is_requested_by_a_schema():
    """A server with structured output can give nothing else."""
    async with OpenAIServer([Say(GOOD)]) as server, client_of(server) as client:
        reply = await ClientAsk(client)(MESSAGES)
        [body] = server.bodies
    assert reply == GOOD
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["code", "scores"]


async def test_a_server_without_schemas_is_asked_without_from_then_on():
    """The refusal costs one request in a run, not one for each group."""
    script = [Refuse(400, "response_format is not supported"), Say(GOOD), Say(GOOD)]
    async with OpenAIServer(script) as server, client_of(server) as client:
        ask = ClientAsk(client)
        assert await ask(MESSAGES) == await ask(MESSAGES) == GOOD
        assert ["response_format" in body for body in server.bodies] == [True, False, False]


async def test_a_broken_server_is_no_refusal_of_schemas():
    """Status 500 is an error of the call, and the schema is used again."""
    async with OpenAIServer([Refuse(500), Say(GOOD)]) as server, client_of(server) as client:
        ask = ClientAsk(client)
        with pytest.raises(InternalServerError):
            await ask(MESSAGES)
        await ask(MESSAGES)
        assert all("response_format" in body for body in server.bodies)

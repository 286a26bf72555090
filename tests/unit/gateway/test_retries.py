"""A retry is recorded once; a new request is a new call."""

import asyncio

import httpx
import pytest
from openai import AsyncOpenAI
from pydantic_core import from_json, to_json

from fakes.gateway import OpenRollout, gateway
from fakes.openai_replies import HangUp, Refuse, Say
from fakes.openai_server import SeenRequest
from nat.capture.steps import failed_calls
from nat.gateway.app import GatewayApp
from nat.gateway.retries import Answers, Sent

ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}
RETRY = {"x-stainless-retry-count": "1"}


def client_of(rollout: OpenRollout, **options) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.key, **{"max_retries": 2, **options})


def sent(text: str, *, delivered: bool = True) -> Sent:
    return Sent("application/json", text.encode(), delivered)


def test_old_answers_are_forgotten():
    """A rollout of thousands of calls keeps the last few answers."""
    answers = Answers()
    for number in range(100):
        answers.settle(b"%d" % number, sent("a"))
    assert answers.again(b"0", retry=True) is None
    assert answers.again(b"99", retry=True) is not None


@pytest.mark.parametrize("failure", [Refuse(503, headers={"retry-after-ms": "1"}), HangUp()])
async def test_the_sdks_own_retry_is_one_call(failure):
    """The failed attempt leaves a span, its retry the call, sampled with the seed that the first would have had."""
    async with gateway([failure, Say("hello")]) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        answer = await client.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "hello"
    assert (len(rollout.calls), len(failed_calls(rollout.steps))) == (1, 1)
    assert len({body["seed"] for body in gate.server.bodies}) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_disconnected_retries(stream):
    """If the client disconnects, the upstream request ends too; a retry is the same call."""
    first = asyncio.Event()

    async def slow_once(_: SeenRequest) -> Say:
        if not first.is_set():
            first.set()
            await asyncio.sleep(60)
        return Say("hello")

    async with gateway(slow_once) as gate, gate.rollout() as rollout, client_of(rollout, timeout=2) as client:
        answer = await client.chat.completions.create(**ASK, stream=stream)
        if stream:
            assert "".join([chunk.choices[0].delta.content or "" async for chunk in answer]) == "hello"
    assert len(rollout.calls) == 1
    assert len({body["seed"] for body in gate.server.bodies}) == 1


async def test_an_equal_request_is_a_new_call():
    """An agent that wants two samples gets two, with different seeds."""
    async with gateway([Say("one"), Say("two")]) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        said = [(await client.chat.completions.create(**ASK)).choices[0].message.content for _ in range(2)]
    assert said == ["one", "two"]
    assert len(rollout.calls) == 2
    assert len({body["seed"] for body in gate.server.bodies}) == 2


async def test_a_counted_retry_of_an_answered_call_gets_that_answer():
    """A retry with a retry count gets the sampled answer; nothing is sampled or recorded again."""
    async with gateway([Say("one"), Say("two")]) as gate, gate.rollout() as rollout, httpx.AsyncClient() as client:
        headers = {"authorization": f"Bearer {rollout.key}"}
        url = f"{rollout.base_url}/chat/completions"
        first = await client.post(url, headers=headers, json=ASK)
        again = await client.post(url, headers=headers | RETRY, json=ASK)
        other = await client.post(url, headers=headers | RETRY, json={**ASK, "temperature": 0.5})
    assert first.content == again.content
    assert other.json()["choices"][0]["message"]["content"] == "two"
    assert (len(gate.server.requests), len(rollout.calls)) == (2, 2)


class Connection:
    """An ASGI client that disconnects before the end of its answer."""

    def __init__(self, app: GatewayApp, rollout: OpenRollout, *, dies: bool, stream: bool) -> None:
        self.app = app
        self.body = to_json({**ASK, "stream": stream})
        self.headers = [(b"authorization", f"Bearer {rollout.key}".encode())]
        self.dies = dies
        self.asked = False
        self.dead = asyncio.Event()
        self.got = b""

    async def receive(self) -> dict:
        if not self.asked:
            self.asked = True
            return {"type": "http.request", "body": self.body}
        await self.dead.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body")
        if last and self.dies:
            self.dead.set()
            await asyncio.sleep(60)
        self.got += message.get("body", b"")

    async def ask(self) -> bytes:
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": self.headers}
        await asyncio.wait_for(self.app(scope, self.receive, self.send), 5)
        return self.got


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lost_answer_is_repeated(stream):
    """If the client disconnects after the call was recorded, an equal request gets the same tokens, recorded once."""
    async with gateway([Say("one"), Say("two")]) as gate, gate.rollout() as rollout:
        app = GatewayApp(gate.keyring)
        lost = await Connection(app, rollout, dies=True, stream=stream).ask()
        again = await Connection(app, rollout, dies=False, stream=stream).ask()
        anew = await Connection(app, rollout, dies=False, stream=stream).ask()
    assert again.startswith(lost)
    assert b'"on' in again
    assert b'"tw' in anew
    assert len(rollout.calls) == len(gate.server.requests) == 2
    if not stream:
        assert from_json(again)["choices"][0]["message"]["content"] == "one"

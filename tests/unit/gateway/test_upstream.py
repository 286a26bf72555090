"""Requests to the upstream: limited answer lengths, and recorded sampling."""

from dataclasses import replace

import httpx
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from fakes.gateway import EXACT, gateway
from fakes.openai_replies import Refuse, Reply, Say
from fakes.openai_server import SeenRequest
from nat.capture.context import ReplacedSampling
from nat.wire.sampling import Sampling, read_sampling

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(("asked", "told"), [(16_000, 100), (100, 100), (7, 7)])
async def test_the_llm_limits_an_agents_answer_length(asked, told):
    """Agents request the maximum of models that they know; shorter answers are allowed."""
    async with gateway([Say(), Say()], max_tokens=100) as gate, gate.rollout() as rollout:
        async with AsyncAnthropic(base_url=rollout.url, api_key=rollout.key) as client:
            await client.messages.create(model="m", max_tokens=asked, messages=HELLO)
        async with AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.key) as client:
            await client.chat.completions.create(model="m", max_completion_tokens=asked, messages=HELLO)
    first, second = gate.server.bodies
    assert (first["max_tokens"], second["max_completion_tokens"]) == (told, told)


ROUTES = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO},
}
LENGTHS = [
    ("/v1/chat/completions", "max_tokens"),
    ("/v1/chat/completions", "max_completion_tokens"),
    ("/v1/chat/completions", "n_predict"),
    ("/v1/completions", "max_tokens"),
    ("/v1/responses", "max_output_tokens"),
    ("/v1/messages", "max_tokens"),
]


async def post(rollout, route, **fields):
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {rollout.key}"}) as client:
        return await client.post(f"{rollout.url}{route}", json={"model": "m", **ROUTES[route], **fields})


@pytest.mark.parametrize(("route", "field"), LENGTHS)
async def test_the_limit_holds_for_numbers_of_any_type(route, field):
    """A lenient server accepts numbers of any type, so the gateway does, too."""
    asked = [10_000, 10_000.0, "10000", 1e12]
    async with gateway([Say()] * len(asked), max_tokens=100) as gate, gate.rollout() as rollout:
        for value in asked:
            assert (await post(rollout, route, **{field: value})).status_code == 200
    for body in gate.server.bodies:
        assert {body[key] for key in body if "max" in key or "predict" in key} == {100}
    assert len(gate.server.bodies) == len(asked)


@pytest.mark.parametrize(("route", "field"), [*LENGTHS, ("/v1/chat/completions", "n"), ("/v1/completions", "best_of")])
async def test_an_invalid_length_is_refused(route, field):
    """The error names the field, its value and the expected type; nothing is sent upstream."""
    async with gateway([Say()], max_tokens=100) as gate, gate.rollout() as rollout:
        for asked in [True, "many", "1e9", 0, -1, 2.5, [5], {"a": 1}, 1e300, "9" * 5000]:
            answer = await post(rollout, route, **{field: asked})
            assert answer.status_code == 400
            assert f"{field}: wanted a whole number from 1 on" in answer.json()["error"]["message"]
    assert gate.server.bodies == []


GREEDY = {"temperature": 0, "top_p": 0.9, "top_k": 5}


async def recorded(route, policy=EXACT, **fields):
    """The recorded call of an agent, and the server's request."""
    async with gateway([Say()]) as gate, gate.rollout(policy) as rollout:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {rollout.key}"}) as client:
            body = {"model": "m", "max_tokens": 9, **ROUTES[route], **fields}
            assert (await client.post(f"{rollout.url}{route}", json=body)).status_code == 200
        (call,), (sent,) = rollout.calls, gate.server.bodies
    return call, sent


@pytest.mark.parametrize("route", ROUTES)
async def test_an_agents_sampling_is_recorded(route):
    """The record has its temperature and all fields that change the distribution."""
    greedy, _ = await recorded(route, **GREEDY)
    assert greedy.untrainable_by == ["temperature=0", "top_p=0.9", "top_k=5"]
    cold, _ = await recorded(route, temperature=0.5)
    assert (cold.temperature, cold.untrainable_by) == (0.5, [])


@pytest.mark.parametrize("route", ROUTES)
async def test_an_agents_sampling_is_replaced_in_training(route):
    """In every dialect, the request samples from the model's own distribution."""
    call, sent = await recorded(route, replace(EXACT, replaced=ReplacedSampling(0.8, "student")), **GREEDY)
    assert read_sampling(sent) == Sampling(0.8)
    assert (call.temperature, call.untrainable_by) == (0.8, [])


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
FORCED = {
    "/v1/chat/completions": {"tools": [TOOL], "tool_choice": "required"},
    "/v1/responses": {"tools": [{"type": "function", "name": "look", "parameters": {}}], "tool_choice": "required"},
    "/v1/messages": {"tools": [{"name": "look", "input_schema": {}}], "tool_choice": {"type": "any"}},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", FORCED)
async def test_a_server_that_forces_no_tool_call_answers_freely(route, stream, caplog):
    """Agents such as smolagents' require a call in each answer; the embedded backend refuses, since the answer would
    not be sampled from the policy. So the model chooses, the call is trainable, and the log says it once."""

    def answer(request: SeenRequest) -> Reply:
        forced = request.body["tool_choice"] == "required"
        return Refuse(400, "tool_choice: Input should be 'none' or 'auto'") if forced else Say("ok")

    async with gateway(answer) as gate, gate.rollout() as rollout:
        for _ in range(2):
            answered = await post(rollout, route, max_tokens=9, stream=stream, **FORCED[route])
            assert answered.status_code == 200
    assert [body["tool_choice"] for body in gate.server.bodies] == ["required", "auto", "auto"]
    assert [call.untrainable_by for call in rollout.calls] == [[], []]
    assert len([text for text in caplog.messages if "tool_choice: required" in text]) == 1

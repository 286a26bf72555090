"""The official clients of Responses and Messages through the gateway, with the recorded token ids."""

import asyncio

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from fakes.gateway import gateway
from fakes.openai_replies import HangUp, Refuse, Say, tool_call
from fakes.openai_server import OpenAIServer
from fakes.tool_loops import AGENTS, QUESTION, SYSTEM, Agent
from nat.capture.steps import failed_calls

CALLS = (tool_call("look", {"at": "ü"}, "call_a"), tool_call("look", {"at": 2}, "call_b"))
SAID = [
    {"role": "system", "content": SYSTEM},
    {"role": "user", "content": QUESTION},
    {"role": "assistant", "content": "I look.", "tool_calls": list(CALLS)},
    {"role": "tool", "tool_call_id": "call_a", "content": "a ü"},
    {"role": "tool", "tool_call_id": "call_b", "content": "a 2"},
]
HELLO = [{"role": "user", "content": "hello"}]
PIXEL = "data:image/png;base64,AAAA"


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: f"{agent.func.__name__} {agent.keywords}")
async def test_an_agent_with_tools_is_recorded_as_one_row(agent: Agent):
    """The second prompt begins with the ids of the first prompt and its answer, so both train as one row."""
    async with gateway([Say("I look.", CALLS), Say("It is all there.")]) as gate, gate.rollout() as rollout:
        text = await agent(rollout.url, rollout.key)
    assert text == "It is all there."
    assert [body["messages"] for body in gate.server.bodies] == [SAID[:2], SAID]
    assert {body["model"] for body in gate.server.bodies} == {"tiny"}
    first, second = rollout.calls
    history = first.prompt_token_ids + first.token_ids
    assert second.prompt_token_ids[: len(history)] == history
    assert [len(call.logprobs) for call in rollout.calls] == [len(call.token_ids) for call in rollout.calls]


async def test_messages_are_streamed_piece_by_piece():
    """The agent gets the first text while the server still holds back the next one."""
    heard = asyncio.Event()

    async def hold(number: int) -> None:
        if number == 2:
            await heard.wait()

    texts = []
    async with (
        gateway(OpenAIServer([Say("hello world")], before_event=hold)) as gate,
        gate.rollout() as rollout,
        AsyncAnthropic(base_url=rollout.url, api_key=rollout.key) as client,
        client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream,
    ):
        async for text in stream.text_stream:
            texts.append(text)
            heard.set()
    assert texts == ["hell", "o wo", "rld"]


async def test_responses_are_streamed_piece_by_piece():
    """The agent gets the first text while the server still holds back the next one."""
    heard = asyncio.Event()

    async def hold(number: int) -> None:
        if number == 2:
            await heard.wait()

    texts = []
    async with (
        gateway(OpenAIServer([Say("hello world")], before_event=hold)) as gate,
        gate.rollout() as rollout,
        AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.key) as client,
    ):
        async for event in await client.responses.create(model="m", input="hello", stream=True):
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
                heard.set()
    assert texts == ["hell", "o wo", "rld"]


async def test_errors_have_the_dialects_shape():
    """Each SDK raises its own class for an error of the model server, with the remedy in the text."""
    async with gateway([Refuse(400, "too long"), Refuse(503, "busy"), Refuse(400, "too long")]) as gate:
        async with gate.rollout() as rollout:
            async with AsyncAnthropic(base_url=rollout.url, api_key=rollout.key, max_retries=0) as client:
                with pytest.raises(anthropic.BadRequestError) as refused:
                    await client.messages.create(model="m", max_tokens=9, messages=HELLO)
                with pytest.raises(anthropic.InternalServerError) as busy:
                    await client.messages.create(model="m", max_tokens=9, messages=HELLO)
            async with AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.key, max_retries=0) as client:
                with pytest.raises(openai.BadRequestError, match="too long"):
                    await client.responses.create(model="m", input="hello")
        assert len(failed_calls(rollout.steps)) == 3
    said = {"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}}
    assert refused.value.body == said
    assert (busy.value.status_code, busy.value.body["error"]["type"]) == (529, "overloaded_error")


async def test_a_stream_that_breaks_off_raises():
    """The agent gets an error instead of a truncated answer; no call is recorded."""
    async with (
        gateway([HangUp(2, Say("hello world"))]) as gate,
        gate.rollout() as rollout,
        AsyncAnthropic(base_url=rollout.url, api_key=rollout.key, max_retries=0) as client,
    ):
        with pytest.raises(anthropic.APIStatusError, match="broke off"):
            async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
                await stream.get_final_message()
    assert rollout.calls == []
    assert len(failed_calls(rollout.steps)) == 1

"""OpenAI's client calls the gateway inside a rollout."""

import asyncio

import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from fakes.gateway import OpenRollout, gateway
from fakes.openai_replies import HangUp, Refuse, Say, message_ids, prompt_ids
from fakes.openai_server import OpenAIServer
from nat.capture.context import CapturePolicy
from nat.capture.steps import failed_calls

ASK = {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}


def client_of(rollout: OpenRollout, **options) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.key, **{"max_retries": 0, **options})


async def streamed(client: AsyncOpenAI, **options) -> str:
    chunks = await client.chat.completions.create(**ASK, stream=True, **options)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])


async def test_an_answer_is_recorded_exactly_and_shown_plainly():
    """The upstream request has the server's model name, ids and logprobs; the agent gets its own name and no ids."""
    async with gateway([Say("hello")]) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        answer = await client.chat.completions.create(**ASK)
    assert (answer.model, answer.choices[0].message.content) == ("gpt-4o", "hello")
    assert answer.choices[0].logprobs is None
    assert "token_ids" not in answer.choices[0].model_extra
    assert "prompt_token_ids" not in answer.model_extra
    [seen] = gate.server.requests
    assert seen.headers["authorization"] == "Bearer upstream-key"
    assert (seen.body["model"], seen.body["return_token_ids"], seen.body["logprobs"]) == ("tiny", True, True)
    [call] = rollout.calls
    assert (call.llm_name, call.model) == ("student", "tiny")
    assert call.prompt_token_ids == prompt_ids(ASK["messages"])
    assert call.token_ids == message_ids({"content": "hello"})
    assert len(call.logprobs) == len(call.token_ids)


async def test_a_stream_is_passed_on_chunk_by_chunk():
    """The first chunk reaches the agent while the server holds the second one back."""
    seen, go_on = asyncio.Event(), asyncio.Event()

    async def hold(number: int) -> None:
        if number == 2:
            await seen.wait()

    server = OpenAIServer([Say("hello world")], before_event=hold)
    async with gateway(server) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        text = ""
        async for chunk in await client.chat.completions.create(**ASK, stream=True):
            assert (chunk.model, chunk.choices[0].logprobs) == ("gpt-4o", None)
            text += chunk.choices[0].delta.content or ""
            if text:
                seen.set()
                go_on.set()
        assert [call.message["content"] for call in rollout.calls] == [text] == ["hello world"]
    assert rollout.calls[0].token_ids == message_ids({"content": "hello world"})


ENDS = {
    "chat": '"finish_reason":"stop"',
    "completions": '"finish_reason":"stop"',
    "responses": '"type":"response.completed"',
    "messages": '"stop_reason":"end_turn"',
}


@pytest.mark.parametrize("dialect", ENDS)
@pytest.mark.parametrize("early", [False, True])
async def test_an_agent_may_leave_its_stream(dialect, early):
    """In each dialect: the call is recorded whole before the agent sees its end, or with the tokens that came."""
    gone = asyncio.Event()

    async def hold(number: int) -> None:
        if early and number > 1:
            await gone.wait()

    async with gateway(OpenAIServer([Say("hello world")], before_event=hold)) as gate:
        async with gate.rollout() as rollout:
            other = AsyncAnthropic(base_url=rollout.url, api_key=rollout.key, max_retries=0)
            async with client_of(rollout) as client, other:
                create, ask = {
                    "chat": (client.chat.completions.create, {"messages": ASK["messages"]}),
                    "completions": (client.completions.create, {"prompt": "hi"}),
                    "responses": (client.responses.create, {"input": "hi"}),
                    "messages": (other.messages.create, {"messages": ASK["messages"], "max_tokens": 9}),
                }[dialect]
                async with await create(model="m", stream=True, **ask) as stream:
                    async for event in stream:
                        if ('"hell' if early else ENDS[dialect]) in event.model_dump_json():
                            break
        gone.set()
    [call] = rollout.calls
    said, ends = call.message["content"], [] if early else message_ids({"content": ""})
    assert said in ({"hell", "hello wo"} if early else {"hello world"})
    assert (call.token_ids, call.finish_reason) == (
        message_ids({"content": said})[:-1] + ends,
        None if early else "stop",
    )
    assert failed_calls(rollout.steps) == []


async def test_completions_and_models():
    """Text completions use their own upstream route; every model name is accepted."""
    async with gateway([Say("five")]) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        answer = await client.completions.create(model="davinci", prompt="four, ")
        names = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("gpt-4o")
    assert (answer.model, answer.choices[0].text, answer.choices[0].logprobs) == ("davinci", "five", None)
    assert gate.server.requests[0].path == "/v1/completions"
    assert gate.server.bodies[0]["model"] == "tiny"
    assert (names, one.id) == (["student"], "gpt-4o")
    assert rollout.calls[0].token_ids == message_ids({"content": "five"})


async def test_concurrent_rollouts_are_separate():
    """Each key's calls are recorded in its own rollout, under its own function."""
    async with gateway(lambda request: Say(f"re: {request.last_text}")) as gate:

        async def play(name: str) -> list[str]:
            async with gate.rollout() as rollout, client_of(rollout) as client:
                for turn in range(3):
                    ask = [{"role": "user", "content": f"{name} {turn}"}]
                    await client.chat.completions.create(model="any", messages=ask)
            return [call.message["content"] for call in rollout.calls]

        names = [f"player {number}" for number in range(16)]
        said = await asyncio.gather(*map(play, names))
    assert said == [[f"re: {name} {turn}" for turn in range(3)] for name in names]


async def test_defaults_and_seeds_are_those_of_the_llm():
    """Fields that the agent leaves out get their defaults as for a client in this process; others stay."""
    async with (
        gateway([Say(), Say()], temperature=1.0, max_tokens=9) as gate,
        gate.rollout() as rollout,
        client_of(rollout) as client,
    ):
        await client.chat.completions.create(**ASK)
        await client.chat.completions.create(**ASK, max_tokens=5)
    first, second = gate.server.bodies
    assert (first["temperature"], first["max_tokens"], second["max_tokens"]) == (1.0, 9, 5)
    assert first["seed"] != second["seed"]


async def test_outside_of_training_nothing_is_added():
    """Without a capture policy the upstream request equals the agent's."""
    async with gateway([Say()]) as gate, gate.rollout(CapturePolicy()) as rollout, client_of(rollout) as client:
        await client.chat.completions.create(**ASK)
    assert set(gate.server.bodies[0]) == {"model", "messages"}


async def test_errors_of_the_server_reach_the_agent_in_openais_shape():
    """The status and the text are the server's; the failure is recorded as one."""
    async with gateway([Refuse(400, "too long")]) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        with pytest.raises(openai.BadRequestError, match="too long") as caught:
            await client.chat.completions.create(**ASK)
    assert caught.value.type == "invalid_request_error"
    assert [failed.status for failed in failed_calls(rollout.steps)] == [400]


async def test_the_gateway_retries_as_the_llm_configures():
    """The gateway retries up to `max_retries`, and records the call once."""
    replies = [Refuse(503, headers={"retry-after-ms": "1"}), HangUp(), Say("at last")]
    async with gateway(replies, max_retries=2) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        answer = await client.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "at last"
    assert len(rollout.calls) == 1
    assert len({body["seed"] for body in gate.server.bodies}) == 1


async def test_a_broken_stream_ends_with_an_error_event():
    """The agent gets an error instead of a truncated answer; no call is recorded."""
    replies = [HangUp(2, Say("hello world"))]
    async with gateway(replies) as gate, gate.rollout() as rollout, client_of(rollout) as client:
        with pytest.raises(openai.APIError, match="broke off"):
            await streamed(client)
    assert rollout.calls == []
    assert len(failed_calls(rollout.steps)) == 1

"""The tap on real connections, asynchronous and blocking."""

import asyncio
from typing import Any

import pytest

from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from nat.builder.threads import run_in_thread
from nat.capture.context import CapturePolicy, capturing
from nat.capture.http import CapturingAsyncClient, CapturingClient
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType
from nat.finetuning.trajectories.calls import tokens_of_call
from nat.wire.openai_api import SESSION_HEADER

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
EXACT = CapturePolicy(logprobs=True, token_ids=True)


class Sink(list[IntermediateStepPayload]):
    """A sink that keeps the pushed steps."""

    @property
    def calls(self):
        return [s.metadata.llm_call for s in self if s.event_type is IntermediateStepType.LLM_END]

    @property
    def errors(self) -> list[str]:
        return [s.data.payload["error"] for s in self if s.event_type is IntermediateStepType.SPAN_END]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def tap(sink: Sink) -> Tap:
    return Tap(sink.append)


async def test_plain_http_code_is_recorded(sink, tap):
    """Any HTTP code that posts to a completions route is recorded, without an SDK."""
    async with OpenAIServer([Say("chat"), Say("text")]) as server, CapturingAsyncClient(tap) as client:
        with capturing(EXACT):
            response = await client.post(f"{server.base_url}/chat/completions", json=BODY)
            await client.post(f"{server.base_url}/completions", json={"model": "m", "prompt": "hi"})
            await client.get(f"{server.base_url}/models")
    assert response.json()["choices"][0]["message"]["content"] == "chat"
    assert [call.message["content"] for call in sink.calls] == ["chat", "text"]
    assert all(tokens_of_call(call) for call in sink.calls)


async def test_blocking_code_is_recorded(sink, tap):
    """A thread that the rollout started records into the rollout, streamed or not."""

    def ask(base_url: str) -> str:
        with CapturingClient(tap) as client:
            client.post(f"{base_url}/chat/completions", json=BODY)
            with client.stream("POST", f"{base_url}/chat/completions", json={**BODY, "stream": True}) as response:
                return "".join(response.iter_text())

    async with OpenAIServer([Say("one"), Say("two")]) as server:
        with capturing(EXACT):
            text = await asyncio.to_thread(ask, server.base_url)
    assert "[DONE]" in text
    assert [call.message["content"] for call in sink.calls] == ["one", "two"]
    assert all(tokens_of_call(call) for call in sink.calls)


async def test_a_stream_passes_piece_by_piece(sink, tap):
    """The agent gets the first piece before the server sends the second."""
    read = asyncio.Event()

    async def hold_back(number: int) -> None:
        if number == 2:
            await read.wait()

    async with OpenAIServer([Say("abcdefgh")], before_event=hold_back) as server, CapturingAsyncClient(tap) as client:
        url = f"{server.base_url}/chat/completions"
        async with asyncio.timeout(10), client.stream("POST", url, json={**BODY, "stream": True}) as response:
            async for text in response.aiter_text():
                if "abcd" in text:
                    assert sink == []
                    read.set()
    assert [call.message["content"] for call in sink.calls] == ["abcdefgh"]


async def test_cancelled_calls_are_counted_and_not_logged(sink, tap, caplog):
    """A deadline or Ctrl-C cancels every call that is going on; a line for each would hide why the run ended."""
    caplog.set_level("INFO")
    asked = asyncio.Barrier(9)

    async def never(_request: Any) -> Say:
        await asked.wait()
        await asyncio.sleep(3600)
        return Say()

    async with OpenAIServer(never) as server, CapturingAsyncClient(tap) as client:
        calls = [asyncio.create_task(client.post(f"{server.base_url}/chat/completions", json=BODY)) for _ in range(8)]
        await asked.wait()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert sink.errors == ["CancelledError"] * 8
    assert not [each for each in caplog.messages if "CancelledError" in each]


async def test_calls_of_a_rollout_send_its_session(sink, tap):
    """If exact tokens are requested, calls of a rollout send the same session header, asynchronous or blocking."""
    async with OpenAIServer() as server, CapturingAsyncClient(tap) as client:
        url = f"{server.base_url}/chat/completions"
        for policy in (EXACT, EXACT, CapturePolicy(logprobs=True)):
            with capturing(policy):
                await client.post(url, json=BODY)
                with CapturingClient(tap) as blocking:
                    await asyncio.to_thread(blocking.post, url, json=BODY)
        await client.post(url, json=BODY)
    told = [request.headers.get(SESSION_HEADER) for request in server.requests]
    assert told[0] == told[1] != told[2] == told[3]
    assert None not in told[:4]
    assert set(told[4:]) == {None}


def said(steps: list[IntermediateStepPayload]) -> list[str]:
    calls = [step.metadata.llm_call for step in steps if step.event_type is IntermediateStepType.LLM_END]
    assert all(tokens_of_call(call) for call in calls)
    return [call.message["content"] for call in calls]


async def test_a_client_works_in_several_loops_in_turn():
    """A client works in its own loop, in short-lived loops of threads, and in its own again."""
    steps: list[IntermediateStepPayload] = []
    async with OpenAIServer([Say(str(n)) for n in range(5)]) as server:
        url = f"{server.base_url}/chat/completions"
        async with CapturingAsyncClient(Tap(steps.append)) as client:

            def elsewhere() -> None:
                async def ask() -> None:
                    await client.post(url, json=BODY)
                    async with client.stream("POST", url, json={**BODY, "stream": True}) as response:
                        await response.aread()

                asyncio.run(ask())

            with capturing(EXACT):
                await client.post(url, json=BODY)
                await run_in_thread(elsewhere)
                await client.post(url, json=BODY)
                await run_in_thread(asyncio.run, client.post(url, json=BODY))
    assert said(steps) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("turns", range(24))
async def test_a_client_that_is_closed_leaves_no_connection(turns):
    """A task that an agent has left behind may be connecting then: its call fails, and its connection is closed."""
    async with OpenAIServer() as server:
        http = CapturingAsyncClient(None)
        call = asyncio.create_task(http.post(f"{server.base_url}/chat/completions", json=BODY))
        for _ in range(turns):
            await asyncio.sleep(0)
        await http.aclose()
        await asyncio.wait([call])
        assert call.exception() is not None or call.result().is_success
        await asyncio.wait_for(asyncio.gather(*server._connections), 10)

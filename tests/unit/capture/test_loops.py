"""One client, several event loops."""

import asyncio
from typing import Any

import pytest

from fakes.openai_replies import Say
from fakes.openai_server import OpenAIServer
from nat.builder.threads import run_in_thread
from nat.capture.http import CapturingAsyncClient
from nat.capture.policy import CapturePolicy, capturing
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType
from nat.finetuning.trajectories.calls import tokens_of_call

EXACT = CapturePolicy(logprobs=True, token_ids=True)
BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def said(steps: list[IntermediateStepPayload]) -> list[str]:
    calls = [step.metadata.llm_call for step in steps if step.event_type is IntermediateStepType.LLM_END]
    assert all(tokens_of_call(call) for call in calls)
    return [call.message["content"] for call in calls]


async def test_loops_take_turns():
    """A client is used from its own loop, from loops of threads that end with their calls, and from its own again."""
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


def test_a_client_made_outside_of_loops_belongs_to_none():
    """Module-level code may make the client; whichever loop uses it leaves nothing open."""
    steps: list[IntermediateStepPayload] = []
    client = CapturingAsyncClient(Tap(steps.append))

    async def ask() -> None:
        async with OpenAIServer([Say("hello")]) as server:
            await client.post(f"{server.base_url}/chat/completions", json=BODY)

    with capturing(EXACT):
        asyncio.run(ask())
        asyncio.run(ask())
    assert said(steps) == ["hello", "hello"]


@pytest.mark.parametrize("threads", [8])
async def test_loops_side_by_side(threads):
    """Many loops at once share nothing but the tap."""
    steps: list[IntermediateStepPayload] = []
    async with OpenAIServer() as server, CapturingAsyncClient(Tap(steps.append)) as client:

        def rollout() -> None:
            async def ask() -> None:
                for _ in range(3):
                    await client.post(f"{server.base_url}/chat/completions", json=BODY)

            asyncio.run(ask())

        with capturing(EXACT):
            await asyncio.gather(*(run_in_thread(rollout) for _ in range(threads)))
    assert said(steps) == ["ok"] * 3 * threads

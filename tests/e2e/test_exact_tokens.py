"""Rollouts of several turns against our own backend, from the agent's client to the training rows.

The model has random weights: a tokenizer would split its text otherwise than it was sampled, the text holds broken
characters and special tokens, and generations of one example often have the same text.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from fakes.gateway import EXACT, FakeGateway
from fakes.keys import KEY
from fakes.running_server import running
from fakes.tiny_model import make_tiny_model
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.store import ModelKey
from nat.art.server.trajectories import HistoryReader
from nat.art.wire import ArtTrajectory
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.model_loader import load_model
from nat.backend.server.app import create_app
from nat.capture.context import capturing
from nat.capture.http import CapturingAsyncClient
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepType
from nat.finetuning.trajectories.calls import SeenCall
from nat.finetuning.trajectories.messages import conversations_and_rows
from nat.finetuning.trajectories.rows import broken_by
from nat.gateway.access import Keyring
from nat.gateway.app import GatewayApp
from nat.gateway.upstream import Upstream
from nat.http.server import listening
from nat.plugins.llms.client import push_step

TURNS, GENERATIONS = 3, 8
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    worker = Worker(
        Engine(load_model(make_tiny_model(tmp_path_factory.mktemp("exact") / "tiny")), policy_version="tiny@0")
    )
    yield worker
    worker.close()


@pytest.fixture
async def url(worker) -> AsyncIterator[str]:
    async with running(create_app(worker, api_key=KEY)) as client:
        yield f"{client.base_url}/v1".replace("//v1", "/v1")


@asynccontextmanager
async def gateway_to(url: str) -> AsyncIterator[FakeGateway]:
    async with AsyncExitStack() as stack:
        tap = Tap(push_step, llm_name="student", base_url=url)
        upstream = await stack.enter_async_context(
            Upstream(tap, base_url=url, api_key=KEY, model_name="tiny", timeout=300.0, max_retries=0)
        )
        keyring = Keyring()
        yield FakeGateway(None, upstream, keyring, await stack.enter_async_context(listening(GatewayApp(keyring))))


async def chat(client: AsyncOpenAI, *, stream: bool, length: int) -> None:
    """An agent that says `more` after each answer."""
    messages = [{"role": "user", "content": "hello"}]
    for _ in range(TURNS):
        asked = {"model": "tiny", "messages": messages, "max_tokens": length, "tools": TOOLS}
        if stream:
            chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
            text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
            messages.append({"role": "assistant", "content": text})
        else:
            answer = await client.chat.completions.create(**asked)
            messages.append(answer.choices[0].message.model_dump())
        messages.append({"role": "user", "content": "more"})


def check(calls) -> None:
    """Check that all turns of a rollout are one row and that no prefix is broken."""
    seen = [SeenCall(call=call, function="") for call in calls]
    threads, [row] = conversations_and_rows(seen)
    assert broken_by(threads) == {}
    assert row.num_sampled == sum(len(call.token_ids) for call in calls)


@pytest.mark.parametrize("length", [1, 12])
@pytest.mark.parametrize("stream", [False, True])
async def test_generations_in_this_process_are_one_row_each(url, stream, length):
    """Concurrent rollouts, whole or streamed, with tools; many of the short ones have the same text."""

    async def rollout(seed):
        steps = []
        async with CapturingAsyncClient(Tap(steps.append)) as http:
            with capturing(replace(EXACT, seed=seed)):
                client = AsyncOpenAI(base_url=url, api_key=KEY, http_client=http, max_retries=0)
                await chat(client, stream=stream, length=length)
        return [s.metadata.llm_call for s in steps if s.event_type is IntermediateStepType.LLM_END]

    for calls in await asyncio.gather(*(rollout(seed) for seed in range(GENERATIONS))):
        assert len(calls) == TURNS
        check(calls)


async def completions(url, key):
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        await chat(client, stream=True, length=12)


async def responses(url, key):
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        said = [{"role": "user", "content": "hello"}]
        for _ in range(TURNS):
            answer = await client.responses.create(model="any", input=said, max_output_tokens=16)
            if not answer.output:
                break  # an answer without a word has no place in this dialect's history
            said += [*(item.model_dump() for item in answer.output), {"role": "user", "content": "more"}]


async def messages(url, key):
    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        said = [{"role": "user", "content": "hello"}]
        for _ in range(TURNS):
            answer = await client.messages.create(model="any", messages=said, max_tokens=12)
            if not answer.content:
                break
            said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "more"}]


@pytest.mark.parametrize("agent", [completions, responses, messages], ids=lambda agent: agent.__name__)
async def test_generations_through_the_gateway_are_one_row_each(url, agent):
    """Rollouts through the gateway are one row each in every dialect."""
    async with gateway_to(url) as gate:

        async def rollout(seed):
            async with gate.rollout(replace(EXACT, seed=seed)) as opened:
                await agent(opened.url, opened.key)
            return opened.calls

        found = await asyncio.gather(*(rollout(seed) for seed in range(GENERATIONS)))
    for calls in found:
        check(calls)
    assert max(map(len, found)) == TURNS


async def test_conversations_of_arts_clients_are_one_row_each(worker):
    """Batches of ART's clients hold text; the remembered prompts restore the tokens of each turn."""
    served = ServedAnswers()
    items = [{"role": "user", "content": "hello"}]
    async with running(create_app(worker, api_key=KEY, answers=served)) as client:
        for turn in range(TURNS):
            said = [item.get("message", item) for item in items]
            body = {"model": "tiny", "messages": said, "max_tokens": 12, "seed": turn}
            answer = await client.post(
                "/v1/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"}, timeout=60
            )
            items += [answer.json()["choices"][0], {"role": "user", "content": "more"}]
    key = ModelKey("demo", "agent")
    reader = HistoryReader(worker.loaded.tokenizer, worker.loaded.vocab_size, served, key)
    found = reader.rows(ArtTrajectory(reward=1.0, messages_and_choices=items), where="t")
    assert (found.answers, found.retokenized, len(found.rows)) == (TURNS, 0, 1)

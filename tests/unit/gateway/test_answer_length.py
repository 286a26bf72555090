"""How long an answer an agent may ask for."""

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from fakes.gateway import gateway
from fakes.openai_replies import Say

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(("asked", "told"), [(16_000, 100), (100, 100), (7, 7)])
async def test_an_agent_gets_no_more_than_the_llm_says(asked, told):
    """Agents ask for what the models that they know can do; shorter answers are theirs to ask for."""
    async with gateway([Say(), Say()], max_tokens=100) as gate, gate.rollout() as rollout:
        async with AsyncAnthropic(base_url=rollout.url, api_key=rollout.key) as client:
            await client.messages.create(model="m", max_tokens=asked, messages=HELLO)
        async with AsyncOpenAI(base_url=rollout.base_url, api_key=rollout.key) as client:
            await client.chat.completions.create(model="m", max_completion_tokens=asked, messages=HELLO)
    first, second = gate.server.bodies
    assert (first["max_tokens"], second["max_completion_tokens"]) == (told, told)


async def test_without_a_bound_the_agent_gets_what_it_asks_for():
    """A configuration that names no length leaves it to the agent and the server."""
    async with (
        gateway([Say()]) as gate,
        gate.rollout() as rollout,
        AsyncAnthropic(base_url=rollout.url, api_key=rollout.key) as client,
    ):
        await client.messages.create(model="m", max_tokens=16_000, messages=HELLO)
    assert gate.server.bodies[0]["max_tokens"] == 16_000

"""How agents behind the gateway sample, in each of the four dialects."""

from dataclasses import replace

import httpx
import pytest

from fakes.gateway import EXACT, gateway
from fakes.openai_replies import Say
from nat.capture.policy import ReplacedSampling
from nat.wire.sampling import Sampling, read_sampling

HELLO = [{"role": "user", "content": "hello"}]
ROUTES = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 9},
}
GREEDY = {"temperature": 0, "top_p": 0.9, "top_k": 5}


async def recorded(route, policy=EXACT, **fields):
    """The call of an agent that asks so, and what the server got."""
    async with gateway([Say()]) as gate, gate.rollout(policy) as rollout:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {rollout.key}"}) as client:
            body = {"model": "m", **ROUTES[route], **fields}
            assert (await client.post(f"{rollout.url}{route}", json=body)).status_code == 200
        (call,), (sent,) = rollout.calls, gate.server.bodies
    return call, sent


@pytest.mark.parametrize("route", ROUTES)
async def test_how_an_agent_samples_is_recorded(route):
    """Its temperature and what else changes the distribution, so that it is not trained on unseen."""
    greedy, _ = await recorded(route, **GREEDY)
    assert greedy.untrainable_by == ["temperature=0", "top_p=0.9", "top_k=5"]
    cold, _ = await recorded(route, temperature=0.5)
    assert (cold.temperature, cold.untrainable_by) == (0.5, [])


@pytest.mark.parametrize("route", ROUTES)
async def test_an_agents_sampling_is_replaced_in_training(route):
    """What the server gets is drawn from the model's own distribution, whatever the dialect."""
    call, sent = await recorded(route, replace(EXACT, replaced=ReplacedSampling(0.8, "student")), **GREEDY)
    assert read_sampling(sent) == Sampling(0.8)
    assert (call.temperature, call.untrainable_by) == (0.8, [])

"""What applies to the calls of a rollout, and to which model they go."""

import asyncio
import json

import pytest

from fakes.openai_replies import Say, completion
from nat.capture.context import (
    Address,
    CaptureContext,
    CapturePolicy,
    RolloutCapture,
    address_of,
    capture_context,
    capturing,
    redirecting,
    served_name,
    stable_seed,
)
from nat.capture.tap import Tap
from nat.data_models.intermediate_step import IntermediateStepType


class Call:
    """A call that does nothing at the end of its rollout."""

    close = None

    def left(self) -> None:
        pass


def test_the_default_policy_requests_nothing():
    """The default adds nothing to a request."""
    assert capture_context().rollout is None
    assert CapturePolicy() == CapturePolicy(logprobs=False, token_ids=False, seed=None)


async def test_each_rollout_has_its_own_policy_in_all_tasks_and_threads():
    """Tasks and threads inherit the policy, and concurrent rollouts do not mix."""

    async def rollout(seed: int) -> bool:
        with capturing(CapturePolicy(seed=seed)) as capture:
            await asyncio.sleep(0)
            inside = await asyncio.gather(asyncio.to_thread(capture_context), asyncio.create_task(current()))
            return [each.rollout for each in inside] == [capture, capture] and capture.policy.seed == seed

    async def current() -> CaptureContext:
        return capture_context()

    assert all(await asyncio.gather(*(rollout(seed) for seed in range(32))))
    assert capture_context().rollout is None


def test_a_failed_attempt_returns_its_number():
    """A retry has the number, and so the seed, of the failed attempt."""
    capture, calls = RolloutCapture(CapturePolicy()), [Call() for _ in range(5)]
    assert [capture.begin(call) for call in calls[:3]] == [0, 1, 2]
    assert [capture.end(calls[1], failed=True) for _ in range(2)] == [True, False]
    assert [capture.begin(call) for call in calls[3:]] == [1, 3]


def test_a_seed_is_the_same_in_every_process():
    """Seeds do not use Python's own hash, which differs between processes."""
    assert stable_seed(7, "train", 0) == 1602869857
    assert 0 <= stable_seed(7, "train", 0) < 2**31
    assert stable_seed(1, 12) != stable_seed(11, 2)


CHAT = "/v1/chat/completions"
HERE = Address("localhost", 8000)


def sent_by(tap: Tap, **fields):
    """The request that is sent when an agent requests the base model, and its attempt."""
    attempt = tap.open(CHAT, json.dumps({"model": "base", "messages": [], **fields}).encode())
    assert attempt is not None
    return json.loads(attempt.body), attempt


def test_requests_go_to_the_trained_model():
    """The model name in the body is replaced, along with the capture's additions."""
    tap = Tap(lambda _step: None, base_url="http://127.0.0.1:8000/v1", defaults={"temperature": 0.5})
    with redirecting() as redirects, capturing(CapturePolicy(logprobs=True)):
        redirects.send(HERE, "base", "my_run")
        body, _ = sent_by(tap)
    assert body == {"model": "my_run", "messages": [], "temperature": 0.5, "logprobs": True}


def test_the_record_has_both_names():
    """A call can be selected by the requested and by the sent model name."""
    steps = []
    tap = Tap(steps.append, base_url="http://localhost:8000/v1")
    with redirecting() as redirects:
        redirects.send(HERE, "base", "my_run")
        body, attempt = sent_by(tap)
        attempt.begin(events=False)
        attempt.feed(json.dumps(completion(Say(), body, chat=True, fingerprint=None)).encode())
        attempt.end()
    [call] = [step.metadata.llm_call for step in steps if step.event_type is IntermediateStepType.LLM_END]
    assert (call.model, call.requested_model) == ("my_run", "base")


def test_a_frozen_llm_keeps_its_model():
    """Requests of frozen LLMs stay as they are; those of the trained one and of the agent's own clients go."""
    taps = [Tap(lambda _step: None, base_url="http://localhost:8000/v1", llm_name=llm) for llm in ("a", "b", None)]
    with redirecting() as redirects:
        redirects.send(HERE, "base", "my_run", frozen_llms={"b"})
        assert [sent_by(tap)[0]["model"] for tap in taps] == ["my_run", "base", "my_run"]


async def test_tasks_inherit_redirects_and_their_changes():
    """Concurrent rollouts use the newest weights, not those of their start."""
    with redirecting() as redirects:
        redirects.send(HERE, "base", "run@1")
        go = asyncio.Event()

        async def ask() -> str:
            await go.wait()
            return served_name(HERE, "base")

        task = asyncio.create_task(ask())
        redirects.send(HERE, "base", "run@2")
        go.set()
        assert await task == "run@2"
    assert served_name(HERE, "base") == "base"


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "http://127.0.0.1:8000",
        "http://0.0.0.0:8000/v1",
        "http://[::1]:8000/v1",
        "http://LOCALHOST:8000",
    ],
)
def test_all_names_of_this_machine_are_one(url):
    """All names of the loopback interface are one address."""
    assert address_of(url) == Address("localhost", 8000)

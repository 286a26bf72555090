"""The capture settings of one rollout."""

import asyncio

from nat.capture.context import CaptureContext, CapturePolicy, RolloutCapture, capture_context, capturing, stable_seed


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

"""Batches of ART's clients, and functions that sample from a running backend."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fakes.listeners import Waiter
from fakes.training_batches import random_groups
from nat.art.server.batch import ArtBatch
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.backend.model import LoadedModel
from nat.wire.training import TrainingConfig

DEADLINE = 60
PROMPT = [5, 6, 7, 8]


def art_batch(loaded: LoadedModel, *, seed: int = 0, **config: object) -> ArtBatch:
    """A batch with a signal that is strong enough to change what is sampled."""
    settings = {"learning_rate": 1e-2, "max_logprob_difference": 100, "max_kl": None, **config}
    return ArtBatch(random_groups(loaded, seed=seed), TrainingConfig.model_validate(settings), {"fact": 1.0})


def silent_batch() -> ArtBatch:
    """A batch of equal rewards."""
    return ArtBatch([], TrainingConfig(), {"fact": 0.0})


def ask(worker: Worker, model: str, *, count: int = 1, max_tokens: int = 12) -> Request:
    """Submit a request for the most likely tokens."""
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    request = Request([Sequence(i, PROMPT, params) for i in range(count)], Waiter(), model=model)
    worker.submit(request)
    return request


@dataclass(frozen=True)
class Answer:
    version: str | None
    token_ids: list[int]
    logprobs: list[float]


async def answer(request: Request) -> Answer:
    """Wait for the first choice; raises the request's error."""
    assert await asyncio.to_thread(request.listener.done.wait, DEADLINE)
    if request.listener.error is not None:
        raise request.listener.error
    first = request.sequences[0]
    return Answer(request.policy_version, first.token_ids, first.logprobs)


async def collect(call: AsyncIterator[dict[str, float]]) -> list[dict[str, float]]:
    """Collect all metrics of a training call; raises its error."""
    async with asyncio.timeout(DEADLINE):
        return [metrics async for metrics in call]

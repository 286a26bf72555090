"""The speed of sampler and learner, measured within a bound of seconds.

Random prompts go the way of all requests, and the learner makes a pass over random rows, whose gradients are dropped.
Weights, optimizer and files stay as they are.
"""

from collections.abc import Sequence as Several
from itertools import cycle, islice
from random import Random
from threading import Event
from time import perf_counter

import torch
from torch import nn

from nat.backend.algorithms.registry import Resolved
from nat.backend.inference.sequence import Delta, Request, SamplingParams, Sequence
from nat.backend.model import LoadedModel
from nat.backend.sampling import SamplingEngine
from nat.backend.training.batch import Row
from nat.backend.training.learner import Learner
from nat.backend.training.optimizer import MasterAdamW
from nat.sizing.forecast import Speed
from nat.sizing.memory import Workload
from nat.sizing.rules import micro_batch_tokens

_SHORT_PASS = 64
"""Tokens of the first passes, which decide how much there is time for."""
_DECODED = 16
_PATIENCE = 60.0
"""Seconds that these may take."""
_OPTIMIZED = 2**20
"""Weights of the tensor whose optimizer step is measured."""
_PROMPTS, _ANSWERS = 0.3, 0.2
"""Shares of the time for prompts and for answers; the rest is the learner's."""


def measured_speed(
    engine: SamplingEngine, learner: Learner, workload: Workload, resolved: Resolved, *, seconds: float
) -> Speed:
    """Sample and rehearse an update with sizes as in the workload, as far as there is time."""
    random, loaded = Random(0), engine.loaded
    most = max(1, workload.chat_tokens - _DECODED - 1)
    short = min(most, _SHORT_PASS)
    for _ in range(2):  # the first one warms up
        _, taken = _sampled(engine, [_random_tokens(random, short, loaded)], 1, _PATIENCE)
    affordable = 1 << max(0, int(_PROMPTS * seconds / taken * short).bit_length() - 1)  # repeats have the same load
    length, chats = min(most, max(short, affordable)), min(workload.chats, max(1, affordable // most))
    prompts = [_random_tokens(random, length, loaded) for _ in range(chats)]
    _, prompting = _sampled(engine, prompts, 1, _PATIENCE)
    stepping = _ANSWERS * seconds / 4
    most_chats = min(workload.chats, max(1, int(stepping / taken * short)))  # a step is no slower than such a prompt
    steps = []
    for each in 2 * (most_chats, 2 * most_chats):  # the faster of two: other work on the machine makes one slow
        count, spent = _sampled(engine, list(islice(cycle(prompts), each)), _DECODED, stepping)
        steps.append(spent * each / count if count else 0.0)
    step_seconds, doubled_step_seconds = min(steps[::2]), min(steps[1::2])
    left = (1 - _PROMPTS - _ANSWERS) * seconds
    rehearsed = engine.run_exclusive(lambda: _rehearsed(learner, loaded, workload, resolved, left))
    tokens, learning = rehearsed.result()
    return Speed(
        chats=most_chats if step_seconds else 0,
        prompt_tokens=length,
        prompt_tokens_per_second=chats * length / prompting,
        step_seconds=step_seconds,
        doubled_step_seconds=doubled_step_seconds,
        trained_tokens=tokens,
        trained_tokens_per_second=tokens / learning,
        optimizer_seconds=engine.run_exclusive(lambda: _optimizer_seconds(loaded)).result(),
    )


def _rehearsed(
    learner: Learner, loaded: LoadedModel, workload: Workload, resolved: Resolved, seconds: float
) -> tuple[int, float]:
    """The tokens and the seconds of a pass, of a whole micro-batch if there is time."""
    random, most = Random(1), resolved.config.micro_batch_tokens
    usual = micro_batch_tokens(loaded.widest, cpu=loaded.device.type == "cpu") or most
    length = max(2, workload.row_tokens)
    whole = max(length, min(most, usual, workload.step_tokens) // length * length)
    short = min(_SHORT_PASS, whole)
    tokens, taken = 0, 0.0
    for total in (short, short, whole):  # the first one warms up
        if total > short and taken / tokens * total > seconds:
            break
        rows = _rows(random, total, length, workload.sampled_share, loaded)
        tokens, taken = sum(len(row.input_ids) for row in rows), learner.rehearse(rows, resolved)
    return tokens, taken


class _Waiting:
    """Listens to several requests, and is set when all of them have ended."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.ended = Event()
        self.error: BaseException | None = None

    def on_deltas(self, deltas: list[Delta]) -> None:
        """Nothing streams."""

    def on_finished(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.ended.set()

    def on_failed(self, error: BaseException) -> None:
        self.error = error
        self.ended.set()


def _sampled(engine: SamplingEngine, prompts: Several[list[int]], count: int, seconds: float) -> tuple[int, float]:
    """Sample up to `count` tokens after each prompt at the same time, and count them.

    More than one token is counted, and timed, from when the first ones are there, and at least until further ones are.
    """
    started = perf_counter()
    waiting = _Waiting(len(prompts))
    requests = [
        Request([Sequence(0, prompt, SamplingParams(max_tokens=count, ignore_eos=True, seed=number))], waiting)
        for number, prompt in enumerate(prompts)
    ]
    for request in requests:
        engine.submit(request)
    before, since = 0, started
    while not waiting.ended.wait(0.01) and perf_counter() - started < _PATIENCE:
        found = sum(len(request.sequences[0].token_ids) for request in requests)
        if not before and count > 1:
            before, since = found, perf_counter()
        elif found > before and perf_counter() - since > seconds:
            break
    found, spent = sum(len(request.sequences[0].token_ids) for request in requests), perf_counter() - started
    for request in requests:
        engine.cancel(request)
    if waiting.error is not None:
        raise waiting.error
    return (found - before, spent - (since - started)) if found > before else (found, spent)


def _random_tokens(random: Random, count: int, loaded: LoadedModel) -> list[int]:
    return [random.randrange(loaded.vocab_size) for _ in range(count)]


def _rows(random: Random, total: int, length: int, sampled_share: float, loaded: LoadedModel) -> list[Row]:
    """Random rows of together `total` tokens, the ends of which count as sampled."""
    found: list[Row] = []
    for start in range(0, total, length):
        ids = _random_tokens(random, min(length, total - start), loaded)
        sampled = range(min(len(ids) - 1, round(len(ids) * (1 - sampled_share))), len(ids))
        zeros = [0.0] * len(sampled)
        found.append(
            Row(len(found), len(found), len(found), ids, list(sampled), ids[-len(sampled) :], zeros, list(zeros))
        )
    return found


def _optimizer_seconds(loaded: LoadedModel) -> float:
    """An optimizer step on all trained weights, from the second step on a small tensor of its own."""
    parameters = loaded.trainable_parameters().values()
    dtype = next(iter(parameters)).dtype
    probe = nn.Parameter(torch.zeros(_OPTIMIZED, dtype=dtype, device=loaded.device))
    optimizer = MasterAdamW({"probe": probe})
    seconds = 0.0
    for _ in range(2):
        (probe * 1.0).sum().backward()  # type: ignore[no-untyped-call]  # torch declares it without types
        started = perf_counter()
        with optimizer.all_or_nothing():
            optimizer.step(1e-6)
        seconds = perf_counter() - started
    return seconds * sum(each.numel() for each in parameters) / _OPTIMIZED

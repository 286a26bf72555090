"""Compare an update that was trained again with its record, from the reward to the weights. Pure.

What a mistake has changed first comes first in the order of computing. Numbers are equal bit by bit on the same machine
with the same number of threads; elsewhere sums round differently, so a bound tells rounding from more.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import isnan, nan, sqrt
from typing import Any, NamedTuple

from pydantic import Field

from nat.data_models.score import mean
from nat.runs.records import EpochRecord, JobRecord, RunRecord
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobState, TokenMismatch, TrainingJob

STAGES = ("reward", "log probabilities", "advantage", "loss", "gradient", "step", "weights")
"""In the order of computing: the log probabilities at the beginning of an update depend on no advantage."""
_OF_FAILURE = {
    "invalid_batch": "reward",
    "logprob_mismatch": "log probabilities",
    "gradient_zero": "gradient",
    "gradient_not_finite": "gradient",
    "weights_unchanged": "step",
}
_OF_BATCH = ("trained_groups", "trained_rollouts", "trained_tokens", "zero_advantages")
_OF_STEP: Mapping[str, Sequence[str]] = {
    "log probabilities": ("entropy", "sampler_kl"),
    "advantage": ("advantage_mean", "advantage_size"),
    "loss": ("policy_loss", "loss", "clip_fraction_low", "clip_fraction_high"),
    "gradient": ("grad_norm",),
    "step": ("learning_rate", "update_ratio"),
}
_OF_ADVANTAGE = {"advantage_mean", "policy_loss", "loss"}
"""Sums of both signs, which round as their terms do."""
_RELATIVE = {"grad_norm", "learning_rate", "update_ratio"}
_MOST = 20


class Bounds(NamedTuple):
    """The largest differences by rounding.

    They are three to five times what `python -m bench.rounding` measured for three models between AVX-512, AVX2 and SSE
    (`docs/evidence/speed.md`). Other processors may round further.
    """

    logprob: float
    """Of a token, in nats."""
    number: float
    """Of a sum, relative to its size."""
    weight: float
    """Over the update's own size: AdamW divides by the gradient's size, so what rounds in one near zero shows there."""


IN_FLOAT32, IN_LESS = Bounds(1e-4, 3e-5, 0.02), Bounds(1.0, 0.25, 60.0)


class Likeness(StrEnum):
    """How near a replayed number is to the recorded one."""

    EQUAL = "equal"
    ROUNDING = "equal up to rounding"
    DIFFERS = "differs"


class Compared(RunRecord):
    """A recorded number beside the replayed one."""

    stage: str
    what: str
    recorded: float | str
    replayed: float | str
    likeness: Likeness
    gap: float | None = None
    """How far both are apart, relative to the size that rounding is judged by; None for texts and counts."""
    step: int | None = None
    """The optimizer step, from 1; None for what is before or after all of them."""

    @property
    def name(self) -> str:
        return self.what if self.step is None else f"{self.what}, step {self.step}"


class MovedToken(RunRecord):
    """The derivative of the loss by a token's log probability, with the recorded and with other settings."""

    example_id: str
    generation: int
    row: int
    token: int
    """Its index in the row."""
    token_id: int
    text: str | None = None
    """None if the model's tokenizer is not there."""
    conversation: int | None = None
    message: int | None = None
    """The place of its answer in the conversation; None if it is not recorded."""
    before: float
    after: float


class MovedGradients(RunRecord):
    """What other settings change in the gradient; only `failure` is set if the update was refused."""

    settings: Mapping[str, str] = Field(default_factory=dict)
    """What was changed, and to what."""
    failure: str | None = None
    tokens: int = 0
    """Those that carry loss with either settings, and how many of their gradients are not equal bit by bit."""
    moved: int = 0
    sizes: tuple[float, float] = (0.0, 0.0)
    """Sums of the gradients' sizes over all tokens, before and after."""
    cosine: float | None = None
    """Of the angle between both gradients, as vectors over the tokens; None if one is zero."""
    most: Sequence[MovedToken] = ()
    """Those that moved most, in order."""
    metrics: Mapping[str, tuple[float, float]] = Field(default_factory=dict)
    """Of the update, before and after."""


class Weights(RunRecord):
    """The checkpoint after a replayed update beside the recorded one."""

    tensors: int
    differing: int
    """Those that are not equal bit by bit."""
    largest: str | None = None
    """The one that differs most; by the root mean square of its differences over the sum of the learning rates, which
    is about how far the update moved a weight, or, of optimizer state, over its own size."""
    relative: float = 0.0


class ReplayReport(RunRecord):
    """An update that was trained again."""

    run_id: str
    epoch: int
    """Counted from 0."""
    algorithm: str
    steps: tuple[int, int]
    """Optimizer steps before and after the update."""
    same_request: bool | None
    """Whether the batch and its settings are, by their SHA-256, those that were trained; None if it is not known."""
    compared: Sequence[Compared]
    first: Compared | None
    """The first number in the order of computing that differs by more than rounding."""
    weights: Weights | None
    """None without a checkpoint after the update."""
    moved: MovedGradients | None = None

    @property
    def agrees(self) -> bool:
        return self.first is None


class ReplayedToken(RunRecord):
    """A token of a row; both fields are None where the row has ended, `logprob` also where nobody sampled it."""

    token_id: int | None = None
    logprob: float | None = None
    text: str | None = None


class ReplayedRollout(RunRecord):
    """A rollout that was played again, beside its record."""

    run_id: str
    example_id: str
    generation: int
    seed: int | None
    policy_step: int
    """The optimizer step of the weights."""
    equal_tokens: int
    """Sampled tokens before the first difference, and how far their log probabilities are off, at most."""
    largest_gap: float
    row: int | None = None
    """Where the first token differs; None if none does."""
    token: int | None = None
    recorded: ReplayedToken | None = None
    replayed: ReplayedToken | None = None
    messages: tuple[str, str] | None = None
    """The first message that differs, as recorded and as replayed."""
    cause: str | None = None

    @property
    def agrees(self) -> bool:
        return self.cause is None


def first_beyond(compared: Sequence[Compared], likeness: Likeness) -> Compared | None:
    """The first number in the order of computing that is less alike."""
    order = list(Likeness)
    return next((each for each in compared if order.index(each.likeness) > order.index(likeness)), None)


class Trained(NamedTuple):
    """An update as it was trained again."""

    sent: TrainingJob
    state: JobState
    tokens: TokenMismatch
    weights: Weights | None
    precision: str
    digest: str | None


def compare(
    job: JobRecord, epoch: EpochRecord | None, now: Trained, mismatch: Sequence[tuple[bytes, bytes]]
) -> Iterator[Compared]:
    """All numbers in the order of computing; `mismatch` has that of each example, recorded and replayed.

    Without `epoch`, rewards are not compared.
    """
    state, bounds = now.state, IN_FLOAT32 if now.precision == "float32" else IN_LESS
    if epoch is not None:
        yield from _rewards(epoch, now.sent)
    if mismatch:
        yield _tokens(mismatch, bounds.logprob)
    if state.failure is not None:
        yield _compared(_OF_FAILURE.get(state.failure.type, "step"), "update", ("completed", state.failure.message))
        return
    for name in (each for each in _OF_BATCH if each in job.metrics):
        yield _compared("advantage", name, (job.metrics[name], state.metrics[name]))
    pairs = zip(job.steps, state.steps, strict=False) if job.steps else [(job.metrics, state.metrics)]
    for number, (one, other) in enumerate(pairs, 1):
        for stage, names in _OF_STEP.items():
            for name in (each for each in names if each in one and each in other):
                least = one.get("advantage_size", 1.0) if name in _OF_ADVANTAGE else float(name not in _RELATIVE)
                size = max(least, abs(one[name]))
                yield _compared(stage, name, (one[name], other[name]), bounds.number, size, step=number)
    if (share := job.metrics.get("kept_share")) is not None:
        yield _compared("weights", "kept_share", (share, state.metrics.get("kept_share", 1.0)), bounds.weight)
    if now.weights is not None:
        what = f"{now.weights.largest or 'all tensors'}, over the update's own size"
        yield _compared("weights", what, (0.0, now.weights.relative), bounds.weight)


def _tokens(mismatch: Sequence[tuple[bytes, bytes]], bound: float) -> Compared:
    """The token whose log probability differs most; NaN, where there is no loss, equals NaN."""
    recorded, replayed = (struct.iter_unpack("<e", b"".join(parts)) for parts in zip(*mismatch, strict=True))
    values = [(0.0 if isnan(a) else a, 0.0 if isnan(b) else b) for (a,), (b,) in zip(recorded, replayed, strict=True)]
    at = max(range(len(values)), key=lambda place: abs(values[place][0] - values[place][1]))
    return _compared("log probabilities", f"learner less sampler at token {at} of {len(values)}", values[at], bound)


def _rewards(epoch: EpochRecord, sent: TrainingJob) -> Iterator[Compared]:
    rewards = [rollout.reward for group in sent.groups for rollout in group.rollouts]
    pairs = {
        "rollouts": (epoch.filtered_trajectories, len(rewards)),
        "groups": (epoch.filtered_groups, len(sent.groups)),
        "lowest reward": (epoch.filtered_min_reward, min(rewards)),
        "highest reward": (epoch.filtered_max_reward, max(rewards)),
        "mean reward": (epoch.filtered_avg_reward, mean(rewards)),
    }
    for what, (recorded, replayed) in pairs.items():
        if recorded is not None:
            yield _compared("reward", what, (recorded, replayed))


def _compared(
    stage: str,
    what: str,
    pair: tuple[float | str, float | str],
    bound: float | None = None,
    size: float = 1.0,
    *,
    step: int | None = None,
) -> Compared:
    """Compare two numbers, which may differ by `bound` times `size` from rounding; without a bound, not at all."""
    recorded, replayed = pair
    likeness, gap = Likeness.EQUAL, None if bound is None else 0.0
    if recorded != replayed:
        gap = None if bound is None else abs(float(recorded) - float(replayed)) / (size or nan)
        likeness = Likeness.ROUNDING if gap is not None and gap <= (bound or 0.0) else Likeness.DIFFERS
    facts = {"stage": stage, "what": what, "recorded": recorded, "replayed": replayed, "step": step}
    return Compared(**facts, likeness=likeness, gap=gap)


def moved(rows: Iterable[tuple[RolloutRecord, int]], before: bytes, after: bytes) -> MovedGradients:
    """What moved in the gradients of a job's rows, each given as its rollout and its place there."""
    places = (place for record, row in rows for place in _sampled(record, row))
    gradients = zip(*(struct.iter_unpack("<f", packed) for packed in (before, after)), strict=True)
    found = [
        MovedToken(**place, before=0.0 if isnan(one) else one, after=0.0 if isnan(other) else other)
        for place, ((one,), (other,)) in zip(places, gradients, strict=True)
        if not (isnan(one) and isnan(other))
    ]
    ordered = sorted((each for each in found if each.before != each.after), key=lambda t: -abs(t.after - t.before))
    lengths = sqrt(sum(each.before**2 for each in found)) * sqrt(sum(each.after**2 for each in found))
    return MovedGradients(
        tokens=len(found),
        moved=len(ordered),
        sizes=(sum(abs(each.before) for each in found), sum(abs(each.after) for each in found)),
        cosine=sum(each.before * each.after for each in found) / lengths if lengths else None,
        most=ordered[:_MOST],
    )


def _sampled(record: RolloutRecord, place: int) -> Iterator[dict[str, Any]]:
    """Where each sampled token of a row is: in the row, and in the conversation."""
    row = record.rows[place]
    answers = {(a.row, a.span): (n, a.message) for n, c in enumerate(record.conversations) for a in c.answers}
    here = {"example_id": record.example_id, "generation": record.generation, "row": place}
    for number, span in enumerate(row.spans):
        conversation, message = answers.get((place, number), (None, None))
        for at in range(span.start, span.stop):
            token = {"token": at, "token_id": row.token_ids[at]}
            yield here | token | {"conversation": conversation, "message": message}

"""Warnings about metrics beyond the levels at which training usually goes wrong. Pure.

A metric that the backend does not report raises no alarm.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.fall import (
    ENTROPY,
    NOT_TRAINED,
    RAISE_LIMIT,
    TRUNCATED,
    clipped,
    diagnose_fall,
)
from nat.finetuning.metrics import ORDER_PAIRS, POSITION_BIAS
from nat.runs.records import EpochRecord

EQUAL_GROUPS_EPOCHS = 5
"""Epochs in a row with too many equal groups before the alarm is raised."""
ENTROPY_EPOCHS = 20
"""Span within which a fall of the entropy counts as a collapse."""
ORDER_EPOCHS, ORDER_ENOUGH = 5, 100
"""Epochs whose position biases are averaged, and the least number of pairs: some four groups of eight."""
CLEAR_GAIN = 0.1
"""A mean reward that rises by this share of the span of all rewards has clearly risen."""

EFFECTIVE_SAMPLES = "train/effective_sample_size"
TEACHER = "train/teacher_kl"
TEACHER_EPOCHS = 5
"""Epochs at the beginning and at the end whose divergence from the teacher is compared."""
SAME_MODEL = 1e-4
"""Divergence from the teacher, in nats per token, that rounding makes."""
CLOSE = 0.05
"""Divergence from the teacher below which there is little left to learn."""


@dataclass(frozen=True)
class Alarm:
    """One warning; a repetition has the same name."""

    name: str
    text: str


def alarms(epochs: Sequence[EpochRecord], config: GuardsConfig) -> list[Alarm]:
    """All alarms that the last of `epochs` raises."""
    texts = {name: check(epochs, config) for name, check in _CHECKS.items()} if epochs else {}
    return [Alarm(name, text) for name, text in texts.items() if text is not None]


def _equal_groups(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    shares = [e.share_without_difference for e in epochs[-EQUAL_GROUPS_EPOCHS:]]
    if len(shares) < EQUAL_GROUPS_EPOCHS or min(shares) <= config.max_equal_groups:
        return None
    if _near_the_top(epochs) and _gained(epochs, epochs[0], epochs[-1]):
        return None
    advice = _advice(epochs, "Choose examples that are sometimes solved and sometimes not, or raise num_generations.")
    return (
        f"at least {min(shares):.0%} of the groups had equal rewards in each of the last {len(shares)} epochs "
        f"(alarm above {config.max_equal_groups:.0%}): most rollouts teach nothing. {advice}"
    )


def _untrained(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:  # noqa: ARG001 - as all checks
    last = epochs[-1]
    if last.trained_groups or not last.filtered_groups:
        return None
    return (
        f"the backend trained none of the {last.filtered_groups} groups ({last.filtered_trajectories} rollouts) that "
        f"were submitted, so the weights are as before. {NOT_TRAINED}"
    )


def _effective_samples(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    value = epochs[-1].metrics.get(EFFECTIVE_SAMPLES)
    if value is None or value >= config.min_effective_samples or not epochs[-1].played:
        return None
    return (
        f"the effective sample size is {value:.0%} of the tokens (alarm below {config.min_effective_samples:.0%}): "
        "a few tokens decide the update. Lower the learning rate, num_iterations or steps_per_batch."
    )


def _clip_fraction(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    value = clipped(epochs[-1])
    if value <= config.max_clip_fraction:
        return None
    return (
        f"{value:.0%} of the trained tokens were clipped (alarm above {config.max_clip_fraction:.0%}): the update goes "
        "too far from the weights that sampled. Lower the learning rate, num_iterations or steps_per_batch."
    )


def _truncated(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    value = epochs[-1].metrics.get(TRUNCATED)
    if value is None or value <= config.max_truncated:
        return None
    advice = _advice(epochs, RAISE_LIMIT)
    return (
        f"{value:.0%} of the rollouts hit a token limit (alarm above {config.max_truncated:.0%}): their rewards say "
        f"little about what the model meant to do. {advice}"
    )


def _position_bias(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    found = [
        (e.metrics[ORDER_PAIRS], e.metrics[POSITION_BIAS]) for e in epochs[-ORDER_EPOCHS:] if ORDER_PAIRS in e.metrics
    ]
    pairs = sum(count for count, _ in found)
    if (
        pairs < ORDER_ENOUGH
        or abs(bias := sum(count * each for count, each in found) / pairs) <= config.max_position_bias
    ):
        return None
    return (
        f"the judge prefers the {'earlier' if bias > 0 else 'later'} of two answers by {abs(bias):.0%} (alarm above "
        f"{config.max_position_bias:.0%}; {pairs:.0f} pairs judged in both orders): scores depend on the order. Set "
        "the evaluator's both_orders to 1, which takes twice the calls, or use another judge."
    )


def _entropy(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:
    window = [epoch for epoch in epochs[-ENTROPY_EPOCHS - 1 :] if ENTROPY in epoch.metrics]
    if not window:
        return None
    first, last = max(window, key=lambda epoch: epoch.metrics[ENTROPY]), window[-1]
    before, now = first.metrics[ENTROPY], last.metrics[ENTROPY]
    if now >= (1 - config.max_entropy_drop) * before or _gained(window, first, last) or _near_the_top(epochs):
        return None
    advice = _advice(epochs, "Lower the learning rate or raise epsilon_high.")
    return (
        f"the entropy per token fell from {before:.3f} to {now:.3f} within {ENTROPY_EPOCHS} epochs "
        f"(alarm at -{config.max_entropy_drop:.0%}), and the reward did not rise: the model stops exploring. {advice}"
    )


def _teacher(epochs: Sequence[EpochRecord], config: GuardsConfig) -> str | None:  # noqa: ARG001 - as all checks
    found = [epoch.metrics[TEACHER] for epoch in epochs if TEACHER in epoch.metrics]
    if found and abs(found[0]) < SAME_MODEL:
        return (
            f"the teacher gives the sampled tokens the probabilities that the model gives them (divergence "
            f"{found[0]:.2g} nats per token): it is the same model, so there is nothing to learn. Name another teacher."
        )
    if len(found) < 2 * TEACHER_EPOCHS:
        return None
    first, now = fmean(found[:TEACHER_EPOCHS]), fmean(found[-TEACHER_EPOCHS:])
    if now < max(first, CLOSE):
        return None
    return (
        f"the divergence from the teacher does not fall: {first:.3f} nats per token in the first {TEACHER_EPOCHS} "
        f"epochs and {now:.3f} in the last {TEACHER_EPOCHS}. Lower the learning rate if it jumps, raise it or max_kl "
        "if it stands still."
    )


def _near_the_top(epochs: Sequence[EpochRecord]) -> bool:
    """True if almost every rollout has the highest reward of the run: little is left to gain, or to explore."""
    top = max(epoch.max_reward for epoch in epochs)
    span = top - min(epoch.min_reward for epoch in epochs)
    return top - epochs[-1].avg_reward <= CLEAR_GAIN * span > 0


def _gained(window: Sequence[EpochRecord], first: EpochRecord, last: EpochRecord) -> bool:
    """True if the mean reward rose: a model that has learned what to do is surer of it."""
    span = max(epoch.max_reward for epoch in window) - min(epoch.min_reward for epoch in window)
    return last.avg_reward - first.avg_reward >= CLEAR_GAIN * span > 0


def _advice(epochs: Sequence[EpochRecord], usual: str) -> str:
    """The usual advice, or the diagnosis if the reward has fallen."""
    found = diagnose_fall(epochs)
    return usual if found is None else f"{found.seen} {found.remedy}"


_CHECKS: dict[str, Callable[[Sequence[EpochRecord], GuardsConfig], str | None]] = {
    "equal_groups": _equal_groups,
    "untrained": _untrained,
    "effective_samples": _effective_samples,
    "clip_fraction": _clip_fraction,
    "truncated": _truncated,
    "position_bias": _position_bias,
    "entropy": _entropy,
    "teacher": _teacher,
}


class EpochWindow:
    """The epochs that guards and alarms read; their number is bounded, however long the run.

    These are the first epochs, the last ones, and those with the lowest and the highest reward.
    """

    def __init__(self, config: GuardsConfig) -> None:
        self._num_first = config.collapse_epochs
        self._first: list[EpochRecord] = []
        last = max(ENTROPY_EPOCHS + 1, config.epochs_without_signal, 2 * config.collapse_epochs)
        self._last: deque[EpochRecord] = deque(maxlen=last)
        self._lowest: EpochRecord | None = None
        self._highest: EpochRecord | None = None

    def add(self, record: EpochRecord) -> None:
        """Add the newest epoch."""
        if len(self._first) < self._num_first:
            self._first.append(record)
        self._last.append(record)
        if self._lowest is None or record.min_reward < self._lowest.min_reward:
            self._lowest = record
        if self._highest is None or record.max_reward > self._highest.max_reward:
            self._highest = record

    @property
    def records(self) -> list[EpochRecord]:
        """The selected epochs in order, without duplicates."""
        extremes = [record for record in (self._lowest, self._highest) if record is not None]
        found = {record.epoch: record for record in (*self._first, *extremes, *self._last)}
        return [found[epoch] for epoch in sorted(found)]

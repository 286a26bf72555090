"""Conditions of the held-out examples: they differ from those in training, or are too few to show the gain. Pure."""

from math import sqrt
from statistics import fmean, variance

from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.trend import Trend
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.verdict import Comparison

GENERALISES = 0.5
"""Share of the gain in training that the held-out examples must be able to have."""
GAP_ERRORS = 3.0
"""Standard errors between the held-out score before training and the first training reward."""
UNSEEN_MORE = 0.1
"""Share of unseen words in held-out examples above that between training examples."""


@condition(
    title="The held-out examples are of another kind",
    measure=(
        "held-out gain against the gain in training; words of the held-out examples that no training example "
        "has; difference of the scores before training"
    ),
    bound=GENERALISES,
    healthy="the 95 % interval of the held-out gain reaches {bound:.0%} of the gain in training",
    source="the verdict's interval; unseen words are compared with those between training examples",
    remedy="Split one set of examples at random, or train on examples like those that are held out.",
    despite_learning=True,
)
def held_out_differs(window: Window, bound: float) -> Seen | None:
    gains = _gains_in_training_alone(window, bound)
    reason = _difference(window) if gains else ""
    return Seen(1.0, f"{gains}; {reason}") if reason else None


@condition(
    title="The model learns its own examples only",
    measure="held-out gain against the gain in training",
    bound=GENERALISES,
    healthy="the 95 % interval of the held-out gain reaches {bound:.0%} of the gain in training",
    source="the verdict's interval",
    remedy=(
        "Train on more examples or for fewer epochs, set beta, and read the held-out answers: the model may "
        "have found a flaw of the evaluator."
    ),
    despite_learning=True,
)
def memorises(window: Window, bound: float) -> Seen | None:
    gains = _gains_in_training_alone(window, bound)
    return Seen(1.0, gains) if gains and not _difference(window) else None


@condition(
    title="Too few held-out examples to show the gain",
    measure="95 % interval of the held-out gain",
    healthy="above zero",
    source="the verdict's interval",
    remedy="Use more held-out examples, which show smaller differences.",
    of_the_end=True,
    despite_learning=True,
)
def few_held_out(window: Window, _bound: float) -> Seen | None:
    held_out, trend = window.held_out, window.trend
    if held_out is None or trend is None or not window.has_learned or window.improved:
        return None
    if _gains_in_training_alone(window, GENERALISES) or _possible(trend, held_out) < GENERALISES * trend.gain:
        return None
    return Seen(
        0.5,
        f"the 95 % interval of {held_out.num_examples} held-out examples, {_interval(held_out)}, contains zero; the "
        f"reward in training gained {trend.gain:+.3f}",
    )


def _gains_in_training_alone(window: Window, bound: float) -> str:
    """Both gains, if the held-out score cannot have gained that share of the gain in training; else empty.

    Where it was near the highest score already, it could gain less.
    """
    held_out, trend = window.held_out, window.trend
    if held_out is None or trend is None or not trend.learned:
        return ""
    if held_out.interval[1] >= bound * _possible(trend, held_out):
        return ""
    return (
        f"the reward in training gained {trend.gain:+.3f}, the held-out score {held_out.difference:+.3f} "
        f"(95 % interval {_interval(held_out)})"
    )


def _possible(trend: Trend, held_out: Comparison) -> float:
    """The gain in training, or the most that the held-out score could gain."""
    return min(trend.gain, trend.highest - held_out.before)


def _difference(window: Window) -> str:
    """How the held-out examples differ from those in training; empty if no difference is seen."""
    unseen, usual, gap = window.facts.unseen_words, window.facts.usual_unseen, _gap(window)
    if unseen is not None and usual is not None and unseen - usual > UNSEEN_MORE:
        return (
            f"{unseen:.0%} of the words of a held-out example are in no training example (between these: {usual:.0%})"
        )
    if gap is not None and abs(gap) > GAP_ERRORS:
        return f"before training, the scores differed by {abs(gap):.1f} standard errors already"
    return ""


def _gap(window: Window) -> float | None:
    """Held-out score before training less the reward of the first epoch, in standard errors over the examples."""
    first, before = window.epochs[0], window.scored[0]
    played = [] if first.relative or first.epoch != before.epoch else list(first.examples.values())
    if len(played) < 2:
        return None
    spread = first.metrics.get("reward/std", 0.0)  # of single rollouts, as the held-out ones are
    error = sqrt(variance(played) / len(played) + spread**2 / len(before.rewards))
    return (fmean(before.rewards) - fmean(played)) / error if error > 0 else None


def _interval(held_out: Comparison) -> str:
    low, high = held_out.interval
    return f"{low:+.3f} to {high:+.3f}"


OF_HELD_OUT = (held_out_differs, memorises, few_held_out)

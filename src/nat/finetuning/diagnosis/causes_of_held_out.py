"""Causes in the held-out examples: they differ from those in training, or are too few to show the gain. Pure."""

from nat.finetuning.diagnosis.cause import Symptom, cause
from nat.finetuning.diagnosis.evidence import Evidence
from nat.finetuning.diagnosis.held_out import HeldOut

GENERALISES = 0.5
"""Share of the gain in training that the held-out examples must be able to have."""
GAP_ERRORS = 3.0
"""Standard errors between the held-out score before training and the first training reward."""
UNSEEN_MORE = 0.1
"""Share of unseen words in held-out examples above that between training examples."""


@cause(
    title="The held-out examples are of another kind",
    measure=(
        "held-out gain against the gain in training; words of the held-out examples that no training example "
        "has; difference of the scores before training"
    ),
    healthy=f"the 95 % interval of the held-out gain reaches {GENERALISES:.0%} of the gain in training",
    source="the verdict's interval; unseen words are compared with those between training examples",
    remedy="Split one set of examples at random, or train on examples like those that are held out.",
    despite_learning=True,
)
def held_out_differs(evidence: Evidence) -> Symptom | None:
    held_out = _does_not_generalise(evidence)
    reason = _difference(held_out) if held_out else ""
    return Symptom(1.0, f"{_gains(evidence)}; {reason}") if reason else None


@cause(
    title="The model learns its own examples only",
    measure="held-out gain against the gain in training",
    healthy=f"the 95 % interval of the held-out gain reaches {GENERALISES:.0%} of the gain in training",
    source="the verdict's interval",
    remedy=(
        "Train on more examples or for fewer epochs, set beta, and read the held-out answers: the model may "
        "have found a flaw of the evaluator."
    ),
    despite_learning=True,
)
def memorises(evidence: Evidence) -> Symptom | None:
    held_out = _does_not_generalise(evidence)
    return None if held_out is None or _difference(held_out) else Symptom(1.0, _gains(evidence))


@cause(
    title="Too few held-out examples to show the gain",
    measure="95 % interval of the held-out gain",
    healthy="above zero",
    source="the verdict's interval",
    remedy="Use more held-out examples, which show smaller differences.",
    of_the_end=True,
    despite_learning=True,
)
def few_held_out(evidence: Evidence) -> Symptom | None:
    held_out = evidence.held_out
    if held_out is None or not evidence.has_learned or _does_not_generalise(evidence):
        return None
    if evidence.improved or evidence.trend is None:
        return None
    return Symptom(
        0.5,
        f"the 95 % interval of {held_out.comparison.num_examples} held-out examples, {_interval(held_out)}, contains "
        f"zero; the reward in training gained {evidence.trend.gain:+.3f}",
    )


def _does_not_generalise(evidence: Evidence) -> HeldOut | None:
    """The held-out scores, if they cannot have gained half of what the training reward gained."""
    held_out, trend = evidence.held_out, evidence.trend
    if held_out is None or trend is None or not trend.learned:
        return None
    _, high = held_out.comparison.interval
    return held_out if high < GENERALISES * trend.gain else None


def _difference(held_out: HeldOut) -> str:
    """How the held-out examples differ from those in training; empty if no difference is seen."""
    unseen, usual, gap = held_out.unseen_words, held_out.usual_unseen, held_out.gap_errors
    if unseen is not None and usual is not None and unseen - usual > UNSEEN_MORE:
        return (
            f"{unseen:.0%} of the words of a held-out example are in no training example (between these: {usual:.0%})"
        )
    if gap is not None and abs(gap) > GAP_ERRORS:
        return f"before training, the scores differed by {abs(gap):.1f} standard errors already"
    return ""


def _gains(evidence: Evidence) -> str:
    assert evidence.trend is not None, "checked before"
    assert evidence.held_out is not None, "likewise"
    gain, comparison = evidence.trend.gain, evidence.held_out.comparison
    return (
        f"the reward in training gained {gain:+.3f}, the held-out score {comparison.difference:+.3f} (95 % interval "
        f"{_interval(evidence.held_out)})"
    )


def _interval(held_out: HeldOut) -> str:
    low, high = held_out.comparison.interval
    return f"{low:+.3f} to {high:+.3f}"


CAUSES_OF_HELD_OUT = (held_out_differs, memorises, few_held_out)

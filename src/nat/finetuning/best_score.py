"""What the best weights score on examples that did not choose them. Pure.

The highest of many held-out scores is partly luck, so it is too high. Cross-validation removes that without another
rollout: four fifths of the examples choose the weights, the last fifth scores them, and so on for every fifth. Each
example scores weights that it did not choose, so the mean is unbiased (for a choice by four fifths of the examples).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from random import Random
from statistics import fmean, stdev

from nat.runs.records import BestEpoch, BestMeasure, ValidationRecord

FOLDS = 5
SPLITS = 10
"""Random divisions into folds; their mean depends less on chance than one."""


@dataclass(frozen=True)
class CrossValidated:
    """A score of the best weights that is not too high by luck."""

    score: float
    """Mean score, over the examples, of the weights that the other examples chose."""
    error: float
    """Its standard error, from the differences between examples; that of the choice is not in it."""

    def __str__(self) -> str:
        return f"{self.score:.3f} ± {self.error:.3f} by cross-validation"


def cross_validated(validations: Sequence[ValidationRecord]) -> CrossValidated | None:
    """The score of the weights that the other examples chose; None if there are few examples, or no choice.

    It uses the examples that every validation scored, of which each fold needs one. Of equal weights the earliest are
    chosen, as for the best ones.
    """
    known = [{key: score for key, score in record.distinct.items() if score is not None} for record in validations]
    examples = sorted(set(known[0]).intersection(*known[1:])) if known else []
    if len(known) < 2 or len(examples) < FOLDS:
        return None
    rng, totals = Random(0), [fsum(scores[key] for key in examples) for scores in known]
    earned = dict.fromkeys(examples, 0.0)
    for _ in range(SPLITS):
        rng.shuffle(examples)
        for fold in (examples[start::FOLDS] for start in range(FOLDS)):
            inside = [fsum(scores[key] for key in fold) for scores in known]
            chosen = max(range(len(known)), key=lambda place: round(totals[place] - inside[place], 9))
            for key in fold:
                earned[key] += known[chosen][key] / SPLITS
    return CrossValidated(fmean(earned.values()), stdev(earned.values()) / sqrt(len(earned)))


def choice(best: BestEpoch, validations: Sequence[ValidationRecord], num_epochs: int) -> str | None:
    """How much of the best score may be luck, in a sentence; None if nothing was chosen."""
    if best.measure is BestMeasure.TRAINING:
        return f"the highest of {num_epochs} epochs' mean rewards, so partly luck" if num_epochs > 1 else None
    if len(validations) < 2:
        return None
    text = f"the highest of {len(validations)} validations on the same examples, so probably too high"
    unbiased = cross_validated(validations)
    return text if unbiased is None else f"{text}; {unbiased}"

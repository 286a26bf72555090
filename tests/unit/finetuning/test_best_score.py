"""The score of the best weights on examples that did not choose them."""

from random import Random
from statistics import fmean

import pytest

from fakes.run_records import validation_record
from nat.finetuning.best_score import choice, cross_validated
from nat.runs.records import BestEpoch, BestMeasure


def played(seed, chances, count):
    """One validation for each chance of solving an example."""
    rng = Random(seed)
    return [
        validation_record(epoch, {str(n): float(rng.random() < chance) for n in range(count)})
        for epoch, chance in enumerate(chances)
    ]


def best_of(validations):
    return max(fmean(record.rewards) for record in validations)


def test_luck_is_removed():
    """Where 13 validations of 100 examples differ by chance only, the highest is 7 points too high; this one is not."""
    runs = [played(seed, [0.7] * 13, 100) for seed in range(100)]
    assert fmean(map(best_of, runs)) - 0.7 == pytest.approx(0.073, abs=0.01)
    assert fmean(cross_validated(run).score for run in runs) - 0.7 == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize(
    "validations",
    [
        [],
        played(0, [0.5], 20),
        played(0, [0.5, 0.6], 4),
        [
            validation_record(0, {str(n): 1.0 for n in range(20)}),
            validation_record(1, {str(n): None for n in range(20)}),
        ],
    ],
)
def test_without_a_choice_there_is_no_score(validations):
    """One validation, or fewer examples than folds, or none in common: there is nothing to estimate from."""
    assert cross_validated(validations) is None


def test_the_sentence_says_among_how_many():
    """It has the number of validations, that the figure is too high, and the one that is not."""
    best = BestEpoch(epoch=1, score=0.9, measure=BestMeasure.HELD_OUT)
    validations = played(2, [0.2, 0.9, 0.3], 100)
    text = choice(best, validations, 3)
    assert text is not None
    assert text.startswith("the highest of 3 validations on the same examples, so probably too high; 0.")
    assert choice(best, validations[:1], 1) is None
    few = choice(best, played(0, [0.5, 0.6], 4), 3)
    assert few == "the highest of 2 validations on the same examples, so probably too high"

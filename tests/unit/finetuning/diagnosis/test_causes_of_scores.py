from dataclasses import replace

import pytest

from nat.finetuning.diagnosis.evidence import Evidence
from nat.finetuning.diagnosis.find import diagnosis_of
from nat.finetuning.rollout_statistics import ScoreSpread

RUN = Evidence(num_epochs=4, num_rollouts=400, lowest=0.0, highest=1.0, generations=8.0, num_examples=16)


def causes(**changes) -> list[str]:
    return [finding.cause for finding in diagnosis_of(replace(RUN, **changes)).findings]


def spread(noise, repeats=400):
    """Of 800 degrees of freedom with a variance of .25, this share of it between equal rollouts."""
    return ScoreSpread(compared=800, squares=200.0, repeats=repeats, repeat_squares=repeats * 0.25 * noise)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spread": spread(0.4)}, []),
        ({"spread": spread(0.7)}, ["noisy_score"]),
        ({"spread": spread(1.0)}, ["independent_score"]),
        ({"spread": spread(1.0, repeats=20)}, []),
        ({"equal_groups": 0.9, "equal_between": 0.9, "easy": 0.0}, ["independent_score"]),
        ({"generations": 1.0}, ["single_rollouts"]),
        ({"generations": 1.0, "lowest": 0.5, "highest": 0.5}, ["single_rollouts"]),
        ({"generations": 1.0, "compares": "batch"}, []),
        ({"outside_curriculum": 0.95}, ["outside_curriculum"]),
        ({"outside_curriculum": 0.7}, []),
        ({"equal_groups": 0.9, "hard": 0.9}, ["too_hard"]),
        ({"equal_groups": 0.4, "hard": 0.4}, []),
        ({"equal_groups": 0.9, "easy": 0.9}, ["too_easy"]),
        ({"equal_groups": 0.9, "hard": 0.1, "easy": 0.1}, ["few_generations", "too_hard"]),
    ],
    ids=str,
)
def test_each_number_has_a_healthy_range(changes, expected):
    """Beyond the range the cause is found; within it, nothing is."""
    assert causes(**changes) == expected


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.5, ["constant_score"]), (0.0, ["too_hard", "constant_score"]), (1.0, ["too_easy", "constant_score"])],
)
def test_a_constant_score_may_be_that_of_hard_or_easy_examples(score, expected):
    """A score that is always 0 or 1 is likelier due to the examples than to the evaluator; both are reported."""
    side = {0.0: {"hard": 1.0}, 1.0: {"easy": 1.0}}.get(score, {})
    assert causes(lowest=score, highest=score, equal_groups=1.0, **side) == expected

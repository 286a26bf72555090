import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.run_records import epoch_records
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.conditions_of_scores import NOISE_TO_LEAVE, scores_to_average
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.window import Window


def causes(compares="group", **changes) -> list[str]:
    epochs = epoch_records([0.5] * 4, **changes)
    return [each.cause for each in diagnosis_of(Window(epochs, facts=Facts(compares=compares)), ended=False).findings]


def spread(noise, repeats=100.0):
    """Of 200 degrees of freedom an epoch with a variance of .25, this share of it between equal rollouts."""
    names = ("compared", "example_variance", "repeats", "repeat_variance")
    values = (200.0, 0.25, repeats, 0.25 * noise)
    return {"metrics": {f"reward/{name}": value for name, value in zip(names, values, strict=True)}}


def of_groups(equal, hard=0, easy=0, between=0):
    """So many of 20 groups without a difference, and these of as many examples never, always, or half solved."""
    names = ("reward/equal_groups", "reward/equal_groups_lowest", "reward/equal_groups_highest")
    shares = (equal / 20, (equal - between) / 20, 0.0)
    examples = {str(n): 0.0 if n < hard else 1.0 if n < hard + easy else 0.5 for n in range(20)}
    metrics = dict(zip(names, shares, strict=True))
    return {"num_groups": 20, "groups_without_difference": equal, "examples": examples, "metrics": metrics}


SINGLE = {"num_trajectories": 24, "groups_without_difference": 24}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (spread(0.4), []),
        (spread(0.7), ["noisy_score"]),
        (spread(1.0), ["independent_score"]),
        (spread(1.0, repeats=5.0), []),
        (of_groups(18, between=18), ["independent_score"]),
        (SINGLE, ["single_rollouts"]),
        (SINGLE | {"min_reward": 0.5, "max_reward": 0.5}, ["single_rollouts"]),
        (SINGLE | {"compares": "batch"}, []),
        ({"filtered_groups": 1}, ["outside_curriculum"]),
        ({"filtered_groups": 8}, []),
        (of_groups(18, hard=18), ["too_hard"]),
        (of_groups(12, hard=12), []),
        (of_groups(18, easy=18), ["too_easy"]),
        (of_groups(18, hard=2, easy=2), ["few_generations", "too_hard"]),
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
    ends = {"min_reward": score, "max_reward": score, "groups_without_difference": 24}
    assert causes(**ends, examples={"a": score}) == expected


@given(st.floats(0, 0.99))
def test_averaged_scores_leave_little_noise(share):
    """The mean of the advised number of scores has at most `NOISE_TO_LEAVE` of noise, and that of one less has more."""

    def left(number):
        return share / number / (share / number + 1 - share)

    number = scores_to_average(share)
    assert left(number) <= NOISE_TO_LEAVE + 1e-6
    assert number == 1 or left(number - 1) > NOISE_TO_LEAVE - 1e-6


@pytest.mark.parametrize(
    ("epochs", "reward", "told"),
    [
        (1, 0.0, "In 192 rollouts without a success, one in 65 may still be one. Play 600 to tell a success in 200"),
        (4, 0.0, "In 768 rollouts without a success, one in 257 may still be one. Choose"),
        (1, 1 / 192, "Success is rare but there: the mean score is 0.52% of the way to the highest. Choose"),
    ],
)
def test_rare_is_told_from_never(epochs, reward, told):
    """By the number of rollouts without a success, and how many would tell."""
    scored = {"max_reward": float(reward > 0), "examples": {"a": 0.0, "b": reward}, "groups_without_difference": 23}
    window = Window(epoch_records([reward] * epochs, **scored))
    found = diagnosis_of(window, ended=False).findings
    assert found[0].cause == "too_hard"
    assert found[0].remedy.startswith(told)

"""Advantages computed by hand, and the invariances that define them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.algorithms.advantages import Returns
from nat.backend.algorithms.advantages import batch_advantages as compared
from nat.backend.algorithms.registry import ADVANTAGES

METHODS = ["grpo", "dr_grpo", "rloo", "reinforce_pp"]
rewards = st.lists(st.lists(st.integers(0, 8).map(lambda n: n / 4), min_size=2, max_size=5), min_size=1, max_size=4)


def advantages_of(groups, method, **options):
    return compared(groups, ADVANTAGES[method], **options)


def batch_advantages(groups, method, **options):
    """Advantages of groups in which each rollout has one reward."""
    return advantages_of([Returns.of([[reward] for reward in group]) for group in groups], method, **options)


def values(batch):
    return [group.tolist() for group in batch.groups]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("dr_grpo", [0.5, -0.5, 0.5, -0.5]),
        ("rloo", [2 / 3, -2 / 3, 2 / 3, -2 / 3]),
        ("grpo", [0.5 / (3**-0.5 + 1e-4), -0.5 / (3**-0.5 + 1e-4)] * 2),
        ("reinforce_pp", [0.5 * 3**0.5, -0.5 * 3**0.5] * 2),
    ],
)
def test_golden_case(method, expected):
    """Rewards 1, 0, 1, 0 of one group: mean 1/2, sample standard deviation 1/√3."""
    batch = batch_advantages([[1, 0, 1, 0]], method, normalize=False)
    assert values(batch)[0] == pytest.approx(expected)


def test_reinforce_pp_compares_with_the_batch():
    """With reinforce_pp, groups of one have no baseline of their own but still carry a signal."""
    batch = batch_advantages([[1.0], [0.0]], "reinforce_pp", normalize=True)
    assert [value for (value,) in values(batch)] == pytest.approx([0.5**0.5, -(0.5**0.5)])
    assert batch.has_signal == [True, True]


def test_given_advantages_are_one_for_each_return():
    """Groups and advantages of different lengths are an error and are not truncated."""
    with pytest.raises(ValueError, match="shorter"):
        batch_advantages([[1, 1], [0, 5]], "given", normalize=False, given=[[3.0, -1.0]])


@pytest.mark.parametrize(("given", "expected"), [([3.0, 1.0], [3 / 2**0.5, 1 / 2**0.5]), ([2.0, 2.0], [2.0, 2.0])])
def test_given_advantages_can_be_normalised(given, expected):
    """Given advantages are divided by their standard deviation unless it is zero."""
    batch = batch_advantages([[0, 0]], "given", normalize=True, given=[given])
    assert values(batch)[0] == pytest.approx(expected)


@given(rewards, st.sampled_from(METHODS), st.floats(-5, 5), st.booleans())
def test_adding_a_constant_to_all_rewards_changes_nothing(groups, method, constant, normalize):
    """Only differences of rewards count."""
    shifted = [[reward + constant for reward in group] for group in groups]
    one, other = (batch_advantages(g, method, normalize=normalize) for g in (groups, shifted))
    assert one.has_signal == other.has_signal
    for a, b in zip(one.groups, other.groups, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@given(rewards, st.sampled_from(["dr_grpo", "rloo", "reinforce_pp"]), st.floats(0.01, 100))
def test_normalised_advantages_forget_the_scale(groups, method, factor):
    """With normalisation over the batch, rewards in other units give the same advantages."""
    scaled = [[reward * factor for reward in group] for group in groups]
    one, other = (batch_advantages(g, method, normalize=True) for g in (groups, scaled))
    for a, b in zip(one.groups, other.groups, strict=True):
        assert torch.allclose(a, b, atol=1e-9)


@given(rewards, st.sampled_from(["grpo", "dr_grpo", "rloo"]), st.booleans(), st.integers(0, 4))
def test_an_equal_group_changes_no_other(groups, method, normalize, reward):
    """A group of equal rewards gets zeros and does not change the advantages of other groups."""
    without = batch_advantages(groups, method, normalize=normalize)
    with_it = batch_advantages([[reward, reward, reward], *groups], method, normalize=normalize)
    assert with_it.groups[0].tolist() == [0.0, 0.0, 0.0]
    assert values(with_it)[1:] == values(without)


STEPS = [[3.0, 1.0], [1.0], [0.0, 0.0, 3.0]]
"""Returns of three rollouts with 2, 1 and 3 answers; their means are 2, 1, 1 and the mean of these is 4/3."""


def of_steps(groups, method, *, normalize=False):
    return values(advantages_of([Returns.of(group) for group in groups], method, normalize=normalize))


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("dr_grpo", [5 / 3, -1 / 3, -1 / 3, -4 / 3, -4 / 3, 5 / 3]),
        ("rloo", [3 - 1, 1 - 1, 1 - 1.5, 0 - 1.5, 0 - 1.5, 3 - 1.5]),
        # mean squares: (25/9 + 1/9)/2 = 13/9, 1/9, (16/9 + 16/9 + 25/9)/3 = 19/9; their sum 33/9 over R - 1 = 2
        ("grpo", [n / 3 / ((33 / 18) ** 0.5 + 1e-4) for n in (5, -1, -1, -4, -4, 5)]),
        ("reinforce_pp", [n / 3 / (33 / 18) ** 0.5 for n in (5, -1, -1, -4, -4, 5)]),
    ],
)
def test_golden_returns(method, expected):
    """Each rollout weighs the same in mean and deviation, however many answers it has."""
    assert of_steps([STEPS], method)[0] == pytest.approx(expected)


def test_returns_of_a_batch_by_hand():
    """reinforce_pp: rollouts of mean 1, 0, 2, 1 have mean 1; mean squares 1, 1, 1, 0 make a variance of 3/3."""
    found = of_steps([[[2.0, 0.0], [0.0]], [[2.0], [1.0]]], "reinforce_pp")
    assert found == [pytest.approx([1, -1, -1]), pytest.approx([1, 0])]


def test_normalised_returns_by_hand():
    """Dr.GRPO gives 2, 0, -1 of mean 0 (by rollout: 1, -1); mean squares 2 and 1, over 2 - 1, make a variance of 3."""
    assert of_steps([[[3.0, 1.0], [0.0]]], "dr_grpo", normalize=True) == [pytest.approx([2 / 3**0.5, 0, -1 / 3**0.5])]


@given(rewards, st.sampled_from(METHODS), st.booleans(), st.integers(1, 4))
def test_equal_returns_are_a_reward(groups, method, normalize, answers):
    """Rollouts whose answers all have one return get the advantages of that reward, with any number of answers."""
    one = batch_advantages(groups, method, normalize=normalize)
    many = advantages_of(
        [Returns.of([[reward] * (answers + n) for n, reward in enumerate(group)]) for group in groups],
        method,
        normalize=normalize,
    )
    assert many.has_signal == one.has_signal
    for own, group, advantages in zip(many.groups, groups, values(one), strict=True):
        wanted = [a for n, a in zip(range(len(group)), advantages, strict=True) for _ in range(answers + n)]
        assert own.tolist() == pytest.approx(wanted, abs=1e-9)

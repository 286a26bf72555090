"""Advantages by hand, and the invariances that define them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.training.advantages import batch_advantages

METHODS = ["grpo", "dr_grpo", "rloo", "reinforce_pp"]
rewards = st.lists(st.lists(st.integers(0, 8).map(lambda n: n / 4), min_size=2, max_size=5), min_size=1, max_size=4)


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
    """Groups of one, without a baseline of their own, still carry a signal."""
    batch = batch_advantages([[1.0], [0.0]], "reinforce_pp", normalize=True)
    assert [value for (value,) in values(batch)] == pytest.approx([0.5**0.5, -(0.5**0.5)])
    assert batch.has_signal == [True, True]
    assert batch.zero_variance == [True, True]


@pytest.mark.parametrize("method", METHODS)
def test_equal_rewards_everywhere_carry_nothing(method):
    """All advantages are exactly zero, up to rounding in the rewards and for a group of one too."""
    batch = batch_advantages([[0.3, 0.1 + 0.2], [0.3]], method, normalize=True)
    assert values(batch) == [[0.0, 0.0], [0.0]]
    assert batch.has_signal == [False, False]


@given(rewards)
def test_rloo_is_dr_grpo_scaled(groups):
    """RLOO = G/(G-1) · Dr.GRPO in each group."""
    rloo = batch_advantages(groups, "rloo", normalize=False)
    dr_grpo = batch_advantages(groups, "dr_grpo", normalize=False)
    for one, other in zip(rloo.groups, dr_grpo.groups, strict=True):
        assert torch.allclose(one, other * len(other) / (len(other) - 1))


@given(rewards, st.sampled_from(METHODS), st.floats(-5, 5), st.booleans())
def test_adding_a_constant_to_all_rewards_changes_nothing(groups, method, constant, normalize):
    """Only differences count."""
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
    """A group of equal rewards gets zeros, and the others get what they got without it."""
    without = batch_advantages(groups, method, normalize=normalize)
    with_it = batch_advantages([[reward, reward, reward], *groups], method, normalize=normalize)
    assert with_it.groups[0].tolist() == [0.0, 0.0, 0.0]
    assert values(with_it)[1:] == values(without)

"""Rewards of an epoch: bins and groups."""

from hypothesis import given
from hypothesis import strategies as st

from nat.runs.outcomes import histogram
from nat.runs.rollouts import Outcome

REWARDS = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=80)


def outcomes(rewards):
    return [Outcome("a", number, reward, None) for number, reward in enumerate(rewards)]


@given(REWARDS)
def test_each_reward_is_in_one_bin_which_counts_it(rewards):
    """Whatever the rewards are, each is counted once."""
    bins = histogram(outcomes(rewards))
    assert sum(each.count for each in bins) == sum(reward is not None for reward in rewards)

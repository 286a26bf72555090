from nat.data_models.finetuning import DPOItem, Trajectory
from nat.finetuning.trajectories.groups import has_signal, reward_spread


def group(*values):
    return [Trajectory(episode=[], reward=value) for value in values]


def test_groups_that_differ_by_rounding_carry_no_signal():
    """0.3 equals 0.1 + 0.2, and 0.3 - 0.2 is not below a minimum of 0.1."""
    assert reward_spread(group(0.3, 0.1 + 0.2)) == 0.0
    assert not has_signal(group(0.3, 0.1 + 0.2))
    assert has_signal(group(0.2, 0.3), least=0.1)
    assert not has_signal(group(0.2, 0.29), least=0.1)


def shaped(*numbers):
    return Trajectory(episode=[], reward=1.0, shaped_rewards=list(numbers))


def test_shaped_rewards_are_compared():
    """If answers have their own numbers, trajectories of equal reward may differ."""
    assert reward_spread([shaped(0.0, 2.0), shaped(2.0, 0.5)]) == 2.0
    assert reward_spread([shaped(1.0), shaped(1.0, 1.0)]) == 0.0


def test_a_preference_pair_is_a_signal_in_itself():
    """A group with one pair, or with pairs of equal rewards, is not left out as one without a difference."""
    pair = Trajectory(episode=[DPOItem(prompt="p", chosen_response="a", rejected_response="b")], reward=1.0)
    assert has_signal([pair], least=0.5)
    assert has_signal([pair, pair])

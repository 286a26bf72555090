from nat.data_models.finetuning import Trajectory
from nat.finetuning.trajectories.groups import has_signal, reward_spread, statistics_of


def group(*values):
    return [Trajectory(episode=[], reward=value) for value in values]


def test_nothing_has_no_statistics():
    """No reward is not a reward of zero."""
    assert statistics_of([[], []]) is None
    assert reward_spread([]) == 0.0


def test_statistics_are_over_trajectories():
    """Groups of different sizes weigh by their trajectories."""
    found = statistics_of([group(1.0), group(0.0, 0.0, 0.0)])
    assert found is not None
    assert (found.mean, found.min, found.max) == (0.25, 0.0, 1.0)


def test_groups_that_differ_by_rounding_teach_nothing():
    """0.3 and 0.1 + 0.2 are the same reward, and 0.3 - 0.2 is no less than the 0.1 that a curriculum asks for."""
    assert reward_spread(group(0.3, 0.1 + 0.2)) == 0.0
    assert not has_signal(group(0.3, 0.1 + 0.2))
    assert has_signal(group(0.2, 0.3), least=0.1)
    assert not has_signal(group(0.2, 0.29), least=0.1)


def shaped(*numbers):
    return Trajectory(episode=[], reward=1.0, shaped_rewards=list(numbers))


def test_shaped_rewards_are_what_differs():
    """Where answers are compared by numbers of their own, trajectories of equal reward may differ in them."""
    assert reward_spread([shaped(0.0, 2.0), shaped(2.0, 0.5)]) == 2.0
    assert reward_spread([shaped(1.0), shaped(1.0, 1.0)]) == 0.0


def test_trajectories_that_all_have_the_same_shaped_rewards_are_alike():
    """That the first answer is worth more than the second in all of them tells nothing; nor does a single one."""
    assert reward_spread([shaped(3.0, 1.0), shaped(3.0, 1.0)]) == 0.0
    assert reward_spread([shaped(3.0, 1.0)]) == 0.0

from nat.data_models.finetuning import Trajectory
from nat.finetuning import rewards


def group(*values):
    return [Trajectory(episode=[], reward=value) for value in values]


def test_nothing_has_no_statistics():
    """No reward is not a reward of zero."""
    assert rewards.statistics([]) is None
    assert rewards.of_groups([[], []]) is None
    assert rewards.spread([]) == 0.0


def test_statistics_are_over_trajectories():
    """Groups of different sizes weigh by their trajectories."""
    found = rewards.of_groups([group(1.0), group(0.0, 0.0, 0.0)])
    assert found is not None
    assert (found.mean, found.min, found.max, found.spread) == (0.25, 0.0, 1.0, 1.0)

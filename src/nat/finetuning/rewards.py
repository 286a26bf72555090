"""Statistics of rewards: written once, used by trainer, curriculum and guards."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from nat.data_models.finetuning import Trajectory
from nat.data_models.score import mean as average

Group = Sequence[Trajectory]


class RewardStatistics(BaseModel):
    """Mean and range of some rewards."""

    model_config = ConfigDict(frozen=True)

    mean: float
    min: float
    max: float


def statistics(rewards: Sequence[float]) -> RewardStatistics | None:
    """None if there is no reward: nothing has no mean."""
    if not rewards:
        return None
    return RewardStatistics(mean=average(rewards), min=min(rewards), max=max(rewards))


def of_groups(groups: Iterable[Group]) -> RewardStatistics | None:
    """Over all trajectories, not over the groups' means."""
    return statistics([trajectory.reward for group in groups for trajectory in group])


def spread(group: Group) -> float:
    """Largest difference in what the group's trajectories are compared by; 0 if there is nothing to tell them apart by.

    Where answers have shaped rewards these are compared; trajectories that all have the same ones are alike.
    """
    told = [trajectory.shaped_rewards or [trajectory.reward] for trajectory in group]
    if all(one == told[0] for one in told):
        return 0.0
    values = [value for own in told for value in own]
    return max(values) - min(values)


def mean(group: Group) -> float:
    """Mean reward of a group that is not empty."""
    return average([trajectory.reward for trajectory in group])

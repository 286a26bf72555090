"""Statistics of rewards: written once, used by trainer, curriculum and guards."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from nat.data_models.finetuning import Trajectory

Group = Sequence[Trajectory]


class RewardStatistics(BaseModel):
    """Mean and range of some rewards."""

    model_config = ConfigDict(frozen=True)

    mean: float
    min: float
    max: float

    @property
    def spread(self) -> float:
        return self.max - self.min


def statistics(rewards: Sequence[float]) -> RewardStatistics | None:
    """None if there is no reward: nothing has no mean."""
    if not rewards:
        return None
    return RewardStatistics(mean=fmean(rewards), min=min(rewards), max=max(rewards))


def of_groups(groups: Iterable[Group]) -> RewardStatistics | None:
    """Over all trajectories, not over the groups' means."""
    return statistics([trajectory.reward for group in groups for trajectory in group])


def spread(group: Group) -> float:
    """Largest difference in reward between two trajectories of the group; 0 without trajectories."""
    found = of_groups([group])
    return found.spread if found else 0.0


def mean(group: Group) -> float:
    """Mean reward of a group that is not empty."""
    return fmean(trajectory.reward for trajectory in group)

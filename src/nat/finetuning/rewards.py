"""Statistics of rewards: written once, used by trainer, curriculum and guards."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from nat.data_models.finetuning import Trajectory
from nat.data_models.score import mean as average
from nat.wire import rewards as wire_rewards

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
    """Largest difference in what the group's trajectories are compared by; exactly 0 if they are alike."""
    return wire_rewards.spread(_compared(group))


def teaches(group: Group, least: float = 0.0) -> bool:
    """True if the trajectories differ, and by no less than `least`; rounding counts in neither."""
    found = spread(group)
    allowed = wire_rewards.rounding(value for own in _compared(group) for value in own)
    return found > 0 and found >= least - allowed


def mean(group: Group) -> float:
    """Mean reward of a group that is not empty."""
    return average([trajectory.reward for trajectory in group])


def _compared(group: Group) -> list[list[float]]:
    """What each trajectory is compared by: its shaped rewards where it has some, else its reward."""
    return [trajectory.shaped_rewards or [trajectory.reward] for trajectory in group]

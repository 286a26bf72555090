"""Groups of trajectories, one for each example, and whether their rewards carry a learning signal. Pure.

Different examples are never put together, not even with one generation each: their rewards are not comparable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory, TrajectoryCollection
from nat.data_models.score import mean
from nat.runs.rollouts import Answer, Beginning, Conversation, RolloutRecord
from nat.wire import rewards


def group_by_example(trajectories: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """One group per example id, in the order in which the examples were first seen."""
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(example_id(trajectory), []).append(trajectory)
    return list(groups.values())


def example_id(trajectory: Trajectory) -> str:
    """The id of the trajectory's example; without one it is an example of its own."""
    named = (trajectory.metadata or {}).get("id")
    return f"trajectory at {id(trajectory)}" if named is None else str(named)


def rollout_key(trajectory: Trajectory, position: int) -> tuple[str, int]:
    """Example id and generation, as in the rollout's record; without a generation, its position in the group."""
    generation = (trajectory.metadata or {}).get("generation")
    return example_id(trajectory), generation if isinstance(generation, int) else position


def records_of(collection: TrajectoryCollection) -> list[RolloutRecord]:
    """Records made from the trajectories alone, for builders that keep no records of their rollouts.

    What the trajectories do not say, such as calls and failed rollouts, stays unknown.
    """
    return [_record_of(t, position) for group in collection.trajectories for position, t in enumerate(group)]


def _record_of(trajectory: Trajectory, position: int) -> RolloutRecord:
    items = [item for item in trajectory.episode if isinstance(item, EpisodeItem)]
    example, generation = rollout_key(trajectory, position)
    sampled = set(map(id, trajectory.answers))
    said = [place for place, item in enumerate(items) if item.role is EpisodeItemRole.ASSISTANT]
    answers = [place for place in said if id(items[place]) in sampled] or said[-1:]
    chat = Conversation(
        began=Beginning.FIRST,
        messages=[{"role": str(item.role), "content": item.content} for item in items],
        answers=[Answer(message=place) for place in answers],
    )
    return RolloutRecord(
        example_id=example,
        generation=generation,
        reward=trajectory.reward,
        num_calls=None,
        conversations=[chat] if items else [],
    )


Group = Sequence[Trajectory]


@dataclass(frozen=True)
class RewardStatistics:
    """Mean and range of some rewards."""

    mean: float
    min: float
    max: float


def statistics_of(groups: Iterable[Group]) -> RewardStatistics | None:
    """Statistics over all trajectories, not over the groups' means; None if there is no trajectory."""
    values = [trajectory.reward for group in groups for trajectory in group]
    return RewardStatistics(mean=mean(values), min=min(values), max=max(values)) if values else None


def reward_spread(group: Group) -> float:
    """Largest difference between the returns of the group's trajectories; exactly 0 if all are equal."""
    return rewards.spread(_returns(group))


def has_signal(group: Group, least: float = 0.0) -> bool:
    """True if the returns of the trajectories differ by at least `least`, up to rounding.

    A pair of answers, or an answer with a label, is a signal by itself.
    """
    if any(trajectory.is_preference for trajectory in group):
        return True
    found = reward_spread(group)
    allowed = rewards.rounding(value for own in _returns(group) for value in own)
    return found > 0 and found >= least - allowed


def mean_reward(group: Group) -> float:
    """Mean reward of a group that is not empty."""
    return mean([trajectory.reward for trajectory in group])


def _returns(group: Group) -> list[list[float]]:
    """The returns of each trajectory: its shaped rewards if it has some, else its reward."""
    return [trajectory.shaped_rewards or [trajectory.reward] for trajectory in group]

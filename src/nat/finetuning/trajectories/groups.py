"""Trajectories → groups: the generations of one example, however many there are.

Different examples are never put together, not even with one generation each: their rewards are not comparable.
"""

from collections.abc import Iterable

from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.runs.records import RolloutRecord


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


def records_of(collection: TrajectoryCollection) -> list[RolloutRecord]:
    """What can be told from the trajectories alone, for builders that keep no records of their rollouts."""
    return [
        RolloutRecord(example_id=example_id(trajectory), generation=generation, reward=trajectory.reward)
        for group in collection.trajectories
        for generation, trajectory in enumerate(group)
    ]

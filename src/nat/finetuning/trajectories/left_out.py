"""Records of trajectories that came without any. Pure."""

from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.trajectories.groups import example_id
from nat.runs.records import RolloutRecord


def records_of(collection: TrajectoryCollection) -> list[RolloutRecord]:
    """What the trajectories alone tell, for builders that keep no records of their own."""
    return [
        RolloutRecord(example_id=example_id(trajectory), generation=generation, reward=trajectory.reward)
        for group in collection.trajectories
        for generation, trajectory in enumerate(group)
    ]

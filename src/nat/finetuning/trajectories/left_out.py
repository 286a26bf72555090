"""Count what was not trained on, by cause; and the records of rollouts that gave nothing to train on. Pure."""

from collections import Counter
from collections.abc import Iterable

from nat.data_models.evaluate_runtime import EvaluationRunOutput
from nat.data_models.finetuning import TrajectoryCollection
from nat.finetuning.trajectories.groups import example_id
from nat.runs.records import LeftOutCause, RolloutRecord

_CAUSES = {"raised": LeftOutCause.FAILED, "timeout": LeftOutCause.TIMED_OUT}


def count(records: Iterable[RolloutRecord]) -> dict[str, int]:
    """How many rollouts were left out, by cause in words, the commonest first."""
    return dict(Counter(str(record.left_out) for record in records if record.left_out is not None).most_common())


def failed_records(output: EvaluationRunOutput, generation: int) -> list[RolloutRecord]:
    """One record per rollout of a pass that raised or timed out."""
    return [
        RolloutRecord(
            example_id=failure.item_id,
            generation=generation,
            left_out=_CAUSES[failure.kind],
            error=str(failure),
        )
        for failure in output.failures
    ]


def records_of(collection: TrajectoryCollection) -> list[RolloutRecord]:
    """What the trajectories alone tell, for builders that keep no records of their own."""
    return [
        RolloutRecord(
            example_id=example_id(trajectory), generation=generation, reward=trajectory.reward
        )
        for group in collection.trajectories
        for generation, trajectory in enumerate(group)
    ]

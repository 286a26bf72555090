"""What one rollout left behind."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.rollout_failure import RolloutFailure


@dataclass(frozen=True, slots=True)
class Rollout:
    """One run of the workflow on one item; either `output` counts or `error` says why there is none."""

    item_id: str
    generation: int
    """Which pass over the data it belongs to, from 0."""
    output: Any
    """What the workflow returned; None after a failure."""
    steps: list[IntermediateStep]
    """All steps in the order in which they happened, up to the failure if there was one."""
    error: RolloutFailure | None
    seed: int | None
    """What the rollout's randomness came from; None if it was left to chance."""
    started_at: datetime
    seconds: float
    """Time from the start of the workflow to its end, without waiting for a free slot."""

    @property
    def failed(self) -> bool:
        return self.error is not None

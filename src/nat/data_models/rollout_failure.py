"""Why a rollout gave no output; counted and shown, never scored."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict


class RolloutFailure(BaseModel):
    """The failure of one run of the workflow on one item."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    item_id: str
    generation: int = 0
    """Which pass over the data it happened in, from 0."""
    kind: Literal["raised", "timeout"]
    type: str
    """Name of the exception's class."""
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


def commonest(failures: Sequence[RolloutFailure]) -> tuple[str, int]:
    """The most frequent error as text, and how often it happened; the first one seen on a tie."""
    return Counter(str(failure) for failure in failures).most_common(1)[0]

"""How long rollouts and learner of an overlapped run waited for each other. Pure."""

from collections.abc import Iterable, Mapping
from math import fsum

from pydantic import BaseModel, ConfigDict

WAITING_FOR_ROLLOUTS, WAITING_FOR_WEIGHTS = "time/waiting_for_rollouts", "time/waiting_for_weights"
_MUCH = 0.2
"""Share of the time below which waiting is not worth a change."""


class Waiting(BaseModel):
    """Shares of the time of the epochs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    learner: float
    """In which the learner waited for rollouts."""
    rollouts: float
    """In which none were played, because all that `max_staleness` allows had been."""

    def __str__(self) -> str:
        return (
            f"the learner waited for rollouts in {self.learner:.0%} of the time, rollouts for new weights in "
            f"{self.rollouts:.0%}{self._advice}"
        )

    @property
    def _advice(self) -> str:
        if max(self.learner, self.rollouts) < _MUCH:
            return ""
        if min(self.learner, self.rollouts) >= _MUCH:
            return "; each side waits at times, so a higher max_staleness would let both go on"
        if self.learner > self.rollouts:
            return "; rollouts are the slower side: raise eval.general.max_concurrency, or use finetuning.rollouts"
        return "; the learner is the slower side: more rollouts at a time or a higher max_staleness gain nothing"


def waiting_of(metrics: Iterable[Mapping[str, float]]) -> Waiting | None:
    """Take it from the metrics of epochs; None of a run without `max_staleness`."""
    overlapped = [own for own in metrics if WAITING_FOR_ROLLOUTS in own]
    whole = fsum(own.get("time/epoch", 0.0) for own in overlapped)
    if not whole:
        return None
    learner, rollouts = (
        fsum(own.get(name, 0.0) for own in overlapped) / whole for name in (WAITING_FOR_ROLLOUTS, WAITING_FOR_WEIGHTS)
    )
    return Waiting(learner=learner, rollouts=rollouts)

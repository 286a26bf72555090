"""How often `max_kl` shortened an update, and by how much. Pure."""

from collections.abc import Iterable, Mapping
from statistics import fmean

from pydantic import BaseModel, ConfigDict

_SHARE, _ATTEMPTS = "train/kept_share", "train/shortenings"
_RATE, _USUAL_RATE = "train/learning_rate", "train/usual_learning_rate"


class ShortenedUpdates(BaseModel):
    """The updates of which `max_kl` kept a part of the way; means are over them alone."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    updates: int
    of: int
    """Updates whose way was measured."""
    attempts: int
    """Times that they were shortened."""
    mean_share: float
    """Of the way that is kept."""
    least_share: float
    learning_rate: float
    """Mean of the accepted rates."""
    usual_learning_rate: float
    """The default for these weights."""

    def __str__(self) -> str:
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return (
            f"{self.updates} of {self.of} updates in {attempts}, to keep within max_kl; share kept "
            f"{self.mean_share:.2g} on average, {self.least_share:.2g} at the least; accepted learning rate "
            f"{self.learning_rate:.2g} on average, usual {self.usual_learning_rate:.2g}"
        )


def shortened_updates(metrics: Iterable[Mapping[str, float]]) -> ShortenedUpdates | None:
    """Take it from the metrics of epochs; None if no update was shortened, or the backend does not report it."""
    measured = [own for own in metrics if own.keys() >= {_SHARE, _ATTEMPTS, _RATE, _USUAL_RATE}]
    shortened = [own for own in measured if own[_SHARE] < 1]
    if not shortened:
        return None
    return ShortenedUpdates(
        updates=len(shortened),
        of=len(measured),
        attempts=round(sum(own[_ATTEMPTS] for own in shortened)),
        mean_share=fmean(own[_SHARE] for own in shortened),
        least_share=min(own[_SHARE] for own in shortened),
        learning_rate=fmean(own[_RATE] for own in shortened),
        usual_learning_rate=fmean(own[_USUAL_RATE] for own in shortened),
    )

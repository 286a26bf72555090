"""How the updates of a run moved the policy. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, median

from nat.finetuning.diagnosis import fall
from nat.runs.records import EpochRecord
from nat.runs.shortened import ShortenedUpdates, shortened_updates


@dataclass(frozen=True)
class Updates:
    """How the updates of a run moved the policy; None where the backend does not report it."""

    optimizer_steps: int
    """In the whole run."""
    rollouts_per_step: float
    groups_per_step: float
    """Groups played for each optimizer step, with or without a difference in score."""
    reach: float | None
    """Median over the updates of √(tokens per rollout · KL per token / 2): by Pinsker's inequality, an update changes
    the outcome of at most this share of the rollouts, and the mean reward by at most this share of the rewards'
    range."""
    learning_rate: float | None
    """The highest mean of an update."""
    entropies: tuple[float, float] | None
    """Per token, at its highest and at the end."""
    usual_learning_rate: float | None = None
    """The default for these weights."""
    shortened: ShortenedUpdates | None = None
    """Those that `max_kl` shortened."""
    too_far: tuple[EpochRecord, ...] = ()
    """Epochs whose update moved the policy too far, by the rule of a fallen reward."""

    @property
    def kept_share(self) -> float:
        """Mean share of an update's way that is kept."""
        found = self.shortened
        return 1.0 if found is None else 1 - found.updates / found.of * (1 - found.mean_share)

    @property
    def share_of_usual_rate(self) -> float | None:
        """The learning rate as a share of the default; None if `max_kl` has lowered it."""
        if self.learning_rate is None or self.usual_learning_rate is None or self.shortened:
            return None
        return self.learning_rate / self.usual_learning_rate


def updates_of(epochs: Sequence[EpochRecord]) -> Updates | None:
    """Gather the numbers of all updates; None if there was none."""
    done = [e for e in epochs if e.trained_groups and e.filtered_groups]
    if not done:
        return None
    metrics = [e.metrics for e in done]
    per_update = [e.metrics.get("train/optimizer_steps", 1.0) + e.metrics.get("train/skipped_steps", 0.0) for e in done]
    steps = max(1.0, sum(e.metrics.get("train/optimizer_steps", 1.0) for e in done))
    reaches = [reach for own in metrics if (reach := reach_of(own)) is not None]
    entropies = values_of(metrics, fall.ENTROPY)
    return Updates(
        optimizer_steps=round(steps),
        rollouts_per_step=sum(e.filtered_trajectories for e in done) / steps,
        groups_per_step=fmean(e.num_groups / max(1.0, count) for e, count in zip(done, per_update, strict=True)),
        reach=median(reaches) if reaches else None,
        learning_rate=max(values_of(metrics, fall.RATE), default=None),
        usual_learning_rate=max(values_of(metrics, "train/usual_learning_rate"), default=None),
        shortened=shortened_updates(metrics),
        entropies=(max(entropies), entropies[-1]) if entropies else None,
        too_far=tuple(fall.updates_too_far(epochs)),
    )


def reach_of(metrics: Mapping[str, float]) -> float | None:
    """The largest share of the rollouts whose outcome the update can have changed."""
    names = ("train/approx_kl", "train/trained_tokens", "train/trained_rollouts")
    if any(name not in metrics for name in names):
        return None
    divergence, tokens, rollouts = (metrics[name] for name in names)
    return min(1.0, sqrt(max(0.0, divergence) * tokens / max(1.0, rollouts) / 2))


def values_of(metrics: Iterable[Mapping[str, float]], name: str) -> list[float]:
    """The metric's values, where it is reported."""
    return [own[name] for own in metrics if name in own]

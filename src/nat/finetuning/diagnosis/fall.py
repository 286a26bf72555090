"""Diagnose a fall of the mean reward from what changed before it. Pure.

Every error that names a cause consults the diagnosis first: a model that a single update has broken looks like examples
that are too hard, like a workflow that fails, or like a gradient of zero. The backend's metrics tell these apart;
without them there is no diagnosis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from nat.runs.records import EpochRecord, epoch_number

KL = "train/approx_kl"
UNASKED = "train/unasked_kl"
"""The part of it that counts: what an advantage asked for does no harm. Other backends do not report it."""
WEIGHTS = "train/update_ratio"
GRADIENT = "train/grad_norm"
ENTROPY = "train/entropy"
CLIPPED = ("train/clip_fraction_low", "train/clip_fraction_high")
RATE = "train/learning_rate"
TRUNCATED = "rollout/truncated"

NOT_TRAINED = (
    "Rollouts without exact tokens, and with mask_truncated_completions those that hit a token limit, are not trained "
    "on; the rest of their groups may have no other rollout to compare with."
)
"""Why a backend may train nothing of a batch."""

KL_TOO_FAR = 0.3
"""KL divergence per token of one epoch's update."""
KL_HARMLESS = 0.05
"""Updates that teach a model stay below it."""
WEIGHTS_TOO_FAR = 0.02
"""Change of the weights in one optimizer step, as a share of their size; a harmless KL divergence outweighs it, since
the steps of a small model's LoRA are larger than this."""
WEIGHTS_USUAL = 0.002
"""The usual change in updates of a small model."""
CLIPPED_TOO_MUCH = 0.5
GRADIENT_TOO_STEEP = 20.0
"""Gradient norm over the median of the epochs before."""
FALLEN = 0.5
"""Share of its best height, above the worst reward seen, below which the mean reward has fallen."""
TRUNCATED_MORE = 0.3
HOLD_BACK = (
    "Fewer num_iterations or steps_per_batch, and beta (the KL divergence to the starting model), hold the policy "
    "back, too."
)
EXPLORE = "Raise epsilon_high or beta (the KL divergence to the starting model), or lower the learning rate."
RAISE_LIMIT = "Raise the LLM's max_tokens. With mask_truncated_completions such rollouts are kept out of training."
"""Worded so that it is true whether or not that is set, which the epochs do not show."""
ENTROPY_LEFT = 0.5


class FallCause(StrEnum):
    """What most likely broke the run."""

    UPDATE_TOO_LARGE = "an update moved the policy too far"
    CUT_OFF = "answers were cut off"
    EXPLORES_LESS = "the model stopped exploring"
    UNKNOWN = "no update stands out"


@dataclass(frozen=True)
class FallDiagnosis:
    """A cause, the numbers that show it, and what to do."""

    cause: FallCause
    seen: str
    remedy: str


def diagnose(epochs: Sequence[EpochRecord]) -> FallDiagnosis | None:
    """Judge the updates from the epoch with the best mean reward on; None if the backend reports no metrics."""
    if not epochs:
        return None
    best = _best(epochs)
    before, since = epochs[:best], epochs[best:]
    return _too_large(before, since) or _cut_off(before, since) or _explores_less(epochs, since) or _unknown(since)


def diagnose_fall(epochs: Sequence[EpochRecord]) -> FallDiagnosis | None:
    """The diagnosis if the mean reward is now far below its best; else None."""
    found = diagnose(epochs) if has_fallen(epochs) else None
    if found is None:
        return None
    best, last = epochs[_best(epochs)], epochs[-1]
    at = epoch_number(best.epoch)
    fall = f"The mean reward was {best.avg_reward:.3f} in epoch {at} and is {last.avg_reward:.3f} now."
    return FallDiagnosis(found.cause, f"{fall} {found.seen}", found.remedy)


def has_fallen(epochs: Sequence[EpochRecord]) -> bool:
    """True if the mean reward is far below its best, measured from the worst reward seen."""
    if not epochs:
        return False
    best, worst = epochs[_best(epochs)].avg_reward, min(e.min_reward for e in epochs)
    return epochs[-1].avg_reward - worst < FALLEN * (best - worst)


def broken_by_update(epochs: Sequence[EpochRecord]) -> FallDiagnosis | None:
    """The diagnosis if an update went too far, since then failures may come from the model; else None."""
    found = diagnose(epochs)
    return found if found is not None and found.cause is FallCause.UPDATE_TOO_LARGE else None


def with_diagnosis(message: str, remedy: str, found: FallDiagnosis | None) -> tuple[str, str]:
    """The message and the remedy of an error. A diagnosis extends the message and replaces the remedy."""
    return (message, remedy) if found is None else (f"{message}\n  {found.seen}", found.remedy)


def _best(epochs: Sequence[EpochRecord]) -> int:
    """Index of the last epoch with the best mean reward."""
    return max(range(len(epochs)), key=lambda place: (epochs[place].avg_reward, place))


def _too_large(before: Sequence[EpochRecord], since: Sequence[EpochRecord]) -> FallDiagnosis | None:
    found = next((epoch for epoch in since if _moved_too_far(epoch, before)), None)
    if found is None:
        return None
    return FallDiagnosis(
        FallCause.UPDATE_TOO_LARGE,
        f"The update of epoch {epoch_number(found.epoch)} moved the policy too far: {numbers(found, before)}.",
        f"{lower_rate(found)} {HOLD_BACK}",
    )


def lower_rate(epoch: EpochRecord) -> str:
    """Advice about the learning rate, with the one that this epoch's update used and one to try."""
    rate = epoch.metrics.get(RATE)
    if rate is None:
        return "Lower the learning rate."
    return f"Lower the learning rate: it was {rate:.2g} on average in that update, so try {rate * _factor(epoch):.1g}."


def updates_too_far(epochs: Sequence[EpochRecord]) -> list[EpochRecord]:
    """The epochs whose update moved the policy too far.

    None does if the reward could not fall. A KL divergence or a gradient that is large in one epoch alone does not
    count unless the reward fell: they have outliers.
    """
    if not epochs or epochs[_best(epochs)].avg_reward <= min(epoch.min_reward for epoch in epochs):
        return []
    found = [epoch for place, epoch in enumerate(epochs) if _moved_too_far(epoch, epochs[:place])]
    return found if len(found) > 1 or any(map(_changed_too_much, found)) or has_fallen(epochs) else []


def _factor(epoch: EpochRecord) -> float:
    """Factor for the learning rate, to which the change of the weights in a step is proportional."""
    return min(1 / 10 if kl_of(epoch) > 1 else 1 / 3, WEIGHTS_USUAL / max(_value(epoch, WEIGHTS), WEIGHTS_USUAL))


def _moved_too_far(epoch: EpochRecord, before: Sequence[EpochRecord]) -> bool:
    usual = [e.metrics[GRADIENT] for e in before if e.metrics.get(GRADIENT, 0) > 0]
    return (
        kl_of(epoch) > KL_TOO_FAR
        or _changed_too_much(epoch)
        or (bool(usual) and _value(epoch, GRADIENT) > GRADIENT_TOO_STEEP * median(usual))
    )


def _changed_too_much(epoch: EpochRecord) -> bool:
    large_steps = _value(epoch, WEIGHTS) > WEIGHTS_TOO_FAR and kl_of(epoch, KL_TOO_FAR) > KL_HARMLESS
    return large_steps or clipped(epoch) > CLIPPED_TOO_MUCH


def _cut_off(before: Sequence[EpochRecord], since: Sequence[EpochRecord]) -> FallDiagnosis | None:
    first, last = _value((before or since)[0], TRUNCATED), _value(since[-1], TRUNCATED)
    if last - first <= TRUNCATED_MORE:
        return None
    return FallDiagnosis(
        FallCause.CUT_OFF,
        f"{last:.0%} of the rollouts hit a token limit, {first:.0%} did at first: the answers grew.",
        RAISE_LIMIT,
    )


def _explores_less(epochs: Sequence[EpochRecord], since: Sequence[EpochRecord]) -> FallDiagnosis | None:
    entropies = [e.metrics[ENTROPY] for e in epochs if ENTROPY in e.metrics]
    if not entropies or entropies[-1] >= ENTROPY_LEFT * max(entropies):
        return None
    return FallDiagnosis(
        FallCause.EXPLORES_LESS,
        f"The entropy per token fell from {max(entropies):.3f} to {entropies[-1]:.3f}, with no update that was too "
        f"large by itself ({_largest(since)}).",
        EXPLORE,
    )


def _unknown(since: Sequence[EpochRecord]) -> FallDiagnosis | None:
    largest = _largest(since)
    if not largest:
        return None
    return FallDiagnosis(
        FallCause.UNKNOWN,
        f"No update since was large ({largest}).",
        "So look at what is rewarded: compare answers before and after in the run's trajectories/, and check the "
        "evaluator and all that the workflow depends on.",
    )


def numbers(epoch: EpochRecord, before: Sequence[EpochRecord]) -> str:
    """The metrics of the epoch's update, and their largest values before."""
    parts = []
    texts = {
        KL: "KL divergence {:.3g} per token",
        UNASKED: "{:.3g} of it against the advantages",
        GRADIENT: "gradient norm {:.3g}",
    }
    for name, text in texts.items():
        if name in epoch.metrics:
            usual = [e.metrics[name] for e in before if name in e.metrics]
            parts.append(text.format(epoch.metrics[name]) + (f" (at most {max(usual):.3g} before)" if usual else ""))
    if WEIGHTS in epoch.metrics:
        parts.append(f"weights changed by {epoch.metrics[WEIGHTS]:.2%} a step")
    if any(name in epoch.metrics for name in CLIPPED):
        parts.append(f"{clipped(epoch):.0%} of the tokens clipped")
    if ENTROPY in epoch.metrics:
        parts.append(f"entropy {epoch.metrics[ENTROPY]:.3f}")
    return ", ".join(parts)


def _largest(epochs: Sequence[EpochRecord]) -> str:
    """The largest KL divergence and gradient norm, as far as they are reported."""
    names = ((KL, "KL divergence per token"), (GRADIENT, "gradient norm"))
    values = {text: [e.metrics[name] for e in epochs if name in e.metrics] for name, text in names}
    return ", ".join(f"{text} at most {max(found):.3g}" for text, found in values.items() if found)


def clipped(epoch: EpochRecord) -> float:
    """Share of the trained tokens that were clipped."""
    return sum(epoch.metrics.get(name, 0.0) for name in CLIPPED)


def kl_of(epoch: EpochRecord, default: float = 0.0) -> float:
    """The KL divergence per token that may do harm, as far as the backend reports it."""
    return epoch.metrics.get(UNASKED, epoch.metrics.get(KL, default))


def _value(epoch: EpochRecord, name: str) -> float:
    return epoch.metrics.get(name, 0.0)

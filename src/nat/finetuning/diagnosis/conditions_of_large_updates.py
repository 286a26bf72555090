"""Conditions of updates that go too far from the weights that sampled. Pure."""

from collections.abc import Sequence
from statistics import fmean, median

from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import EpochRecord, epoch_number

KL = "train/approx_kl"
UNASKED = "train/unasked_kl"
"""The part of it that counts: what an advantage asked for does no harm. Other backends do not report it."""
WEIGHTS = "train/update_ratio"
GRADIENT = "train/grad_norm"
ENTROPY = "train/entropy"
CLIPPED = ("train/clip_fraction_low", "train/clip_fraction_high")
RATE = "train/learning_rate"
EFFECTIVE_SAMPLES = "train/effective_sample_size"

KL_TOO_FAR = 0.3
"""KL divergence per token of one epoch's update."""
KL_HARMLESS = 0.05
"""Updates that teach a model stay below it."""
WEIGHTS_TOO_FAR = 0.02
"""Change of the weights in one optimizer step, as a share of their size; a harmless KL divergence outweighs it, since
the steps of a small model's LoRA are larger than this."""
WEIGHTS_USUAL = 0.002
"""The usual change in updates of a small model."""
GRADIENT_TOO_STEEP = 20.0
"""Gradient norm over the median of the epochs before."""
COSTS_EPOCHS = 0.1
"""Share for what takes no signal away, only time."""
LEAST_KEPT = 0.25
"""Mean share of an update's way that `max_kl` should leave: of several steps, the last are then taken for nothing."""


@condition(
    title="The updates go too far",
    measure=(
        "KL divergence per token of an update against its advantages; change of the weights per step; gradient norm "
        "over its usual value; share of an update that max_kl keeps"
    ),
    healthy=f"below {KL_TOO_FAR:g}, {WEIGHTS_TOO_FAR:.0%} and {GRADIENT_TOO_STEEP:g}; above {LEAST_KEPT:.0%}",
    source="measured: updates that teach a model stay below 0.05; common practice warns above 0.01 to 0.05",
    remedy=(
        "Fewer num_iterations or steps_per_batch, and beta (the KL divergence to the starting model), hold the policy "
        "back, too. An earlier checkpoint may have a better model."
    ),
    without_rollouts=True,
    settings="trainer_adapters: {ADAPTER: {training: {learning_rate: LEARNING_RATE}}}",
)
def rate_too_high(window: Window, _bound: float) -> Seen | None:
    if found := updates_too_far(window):
        worst = max(found, key=_kl_of)
        kl, before = _kl_of(worst, KL_TOO_FAR), [epoch for epoch in window.run if epoch.epoch < worst.epoch]
        others = f", as did {len(found) - 1} others of {len(window.epochs)}" if len(found) > 1 else ""
        return Seen(
            max(0.5, 1 - KL_TOO_FAR / max(kl, KL_TOO_FAR)),
            f"the update of epoch {epoch_number(worst.epoch)} moved the policy too far{others}: "
            f"{_numbers(worst, before)}",
            *_lower_rate(worst),
        )
    kept = _kept(window)
    if kept < LEAST_KEPT:
        seen = f"max_kl keeps {kept:.0%} of an update's way; the rest would move the policy too far"
        return Seen(1 - kept, seen, "Lower the learning rate.")
    return None


@condition(
    title="max_kl holds the run back",
    measure="share of an update's way that max_kl keeps, in a run whose reward rises",
    bound=0.5,
    healthy="above {bound:.0%}",
    source="measured: without the bound, such a run gained almost twice as much",
    remedy="Set training.max_kl to ten times its value, 0.1 by default, or to null: the reward rises, so larger "
    "updates would do no harm, and fewer epochs would do.",
    despite_learning=True,
    of_the_end=True,
    settings="trainer_adapters: {ADAPTER: {training: {max_kl: MAX_KL}}}",
)
def held_back(window: Window, bound: float) -> Seen | None:
    kept = _kept(window)
    if not window.has_learned or kept >= bound or updates_too_far(window):
        return None
    return Seen(COSTS_EPOCHS, f"max_kl keeps {kept:.0%} of an update's way ({window.shortened})")


def _kept(window: Window) -> float:
    """Mean share of the way of all updates."""
    shortened = window.shortened
    return 1.0 if shortened is None else 1 - shortened.updates / shortened.of * (1 - shortened.mean_share)


def updates_too_far(window: Window) -> list[EpochRecord]:
    """The epochs of the window whose update moved the policy too far.

    None does if the reward could not fall. A KL divergence or a gradient that is large in one epoch alone does not
    count unless something went wrong since: they have outliers.
    """
    run = window.run
    could_fall = bool(run) and max(e.avg_reward for e in run) > min(e.min_reward for e in run)
    if not could_fall and not window.since_best:
        return []
    places = range(len(window.before), len(run))
    found = [run[place] for place in places if _moved_too_far(run[place], run[:place])]
    certain = len(found) > 1 or any(map(_changed_too_much, found))
    return found if certain or window.since_best or window.has_fallen else []


def _moved_too_far(epoch: EpochRecord, before: Sequence[EpochRecord]) -> bool:
    usual = [e.metrics[GRADIENT] for e in before if e.metrics.get(GRADIENT, 0) > 0]
    return (
        _kl_of(epoch) > KL_TOO_FAR
        or _changed_too_much(epoch)
        or (bool(usual) and epoch.metrics.get(GRADIENT, 0.0) > GRADIENT_TOO_STEEP * median(usual))
    )


def _changed_too_much(epoch: EpochRecord) -> bool:
    return epoch.metrics.get(WEIGHTS, 0.0) > WEIGHTS_TOO_FAR and _kl_of(epoch, KL_TOO_FAR) > KL_HARMLESS


def _kl_of(epoch: EpochRecord, default: float = 0.0) -> float:
    """The KL divergence per token that may do harm, as far as the backend reports it."""
    return epoch.metrics.get(UNASKED, epoch.metrics.get(KL, default))


def _clipped(epoch: EpochRecord) -> float:
    """Share of the trained tokens that were clipped."""
    return sum(epoch.metrics.get(name, 0.0) for name in CLIPPED)


def _lower_rate(epoch: EpochRecord) -> tuple[str, float | None]:
    """Advice with the learning rate that this epoch's update used, and the one to try.

    The change of the weights in a step is proportional to the rate.
    """
    rate, change = epoch.metrics.get(RATE), epoch.metrics.get(WEIGHTS, 0.0)
    if rate is None:
        return "Lower the learning rate.", None
    factor = min(1 / 10 if _kl_of(epoch) > 1 else 1 / 3, WEIGHTS_USUAL / max(change, WEIGHTS_USUAL))
    lower = float(f"{rate * factor:.1g}")
    return f"Lower the learning rate: it was {rate:.2g} on average in that update, so try {lower:g}.", lower


def _numbers(epoch: EpochRecord, before: Sequence[EpochRecord]) -> str:
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
        parts.append(f"{_clipped(epoch):.0%} of the tokens clipped")
    if ENTROPY in epoch.metrics:
        parts.append(f"entropy {epoch.metrics[ENTROPY]:.3f}")
    return ", ".join(parts)


@condition(
    title="A few tokens decide the update",
    measure="effective sample size, (Σw)²/Σw² over the number of the importance weights w",
    bound="min_effective_samples",
    healthy="above {bound:.0%}",
    source="our choice",
    remedy="Lower the learning rate, num_iterations or steps_per_batch.",
    warns_over=1,
)
def few_effective_samples(window: Window, bound: float) -> Seen | None:
    share = window.mean(EFFECTIVE_SAMPLES)
    if share is None or share >= bound:
        return None
    return Seen(1 - share, f"the effective sample size is {share:.0%} of the tokens")


@condition(
    title="Clipping takes much of the gradient",
    measure="share of the trained tokens that were clipped, so that they have no gradient",
    bound="max_clip_fraction",
    healthy="below {bound:.0%}",
    source="our choice",
    remedy="Lower the learning rate, num_iterations or steps_per_batch.",
    without_rollouts=True,
    warns_over=1,
)
def many_clipped(window: Window, bound: float) -> Seen | None:
    share = fmean(map(_clipped, window.epochs)) if window.epochs else 0.0
    if share <= bound:
        return None
    return Seen(share, f"{share:.0%} of the trained tokens were clipped")


OF_LARGE_UPDATES = (rate_too_high, held_back, few_effective_samples, many_clipped)

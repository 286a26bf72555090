"""Explain what went wrong in a run from what changed since its best epoch. Pure.

Every error that names a cause asks first: a model that a single update has broken looks like examples that are too
hard, like a workflow that fails, or like a gradient of zero. The backend's metrics tell these apart; without them there
is no explanation.
"""

from collections.abc import Sequence

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.conditions_of_large_updates import GRADIENT, KL, many_clipped, rate_too_high
from nat.finetuning.diagnosis.conditions_of_rollouts import truncation
from nat.finetuning.diagnosis.conditions_of_updates import entropy_collapse
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import EpochRecord, Finding, epoch_number


def explanation_of(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> Finding | None:
    """What changed since the epoch with the best mean reward; None if the backend reports no metrics."""
    if not epochs:
        return None
    best = max(range(len(epochs)), key=lambda place: (epochs[place].avg_reward, place))
    window = Window(epochs[best:], epochs[:best], guards=guards, since_best=True)
    conditions = (rate_too_high, many_clipped, truncation, entropy_collapse)
    return next((found for each in conditions if (found := each.found(window))), None) or _no_large_update(window)


def _no_large_update(window: Window) -> Finding | None:
    """What is left to say of a fall, if the backend reports how large its updates were."""
    names = {KL: "KL divergence per token", GRADIENT: "gradient norm"}
    largest = [f"{text} at most {max(found):.3g}" for name, text in names.items() if (found := window.values(name))]
    if not largest:
        return None
    return Finding(
        cause="no_large_update",
        title="No update stands out",
        share=0.0,
        seen=f"no update since was large ({', '.join(largest)})",
        healthy=rate_too_high.healthy,
        remedy="So look at what is rewarded: compare answers before and after in the run's trajectories/, and check "
        "the evaluator and all that the workflow depends on.",
    )


def explanation_of_fall(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> Finding | None:
    """The same with the fall, if the mean reward is now far below its best; else None."""
    found = explanation_of(epochs, guards) if Window(epochs, guards=guards).has_fallen else None
    if found is None:
        return None
    best, last = max(epochs, key=lambda epoch: (epoch.avg_reward, epoch.epoch)), epochs[-1]
    at = epoch_number(best.epoch)
    fall = f"the mean reward was {best.avg_reward:.3f} in epoch {at} and is {last.avg_reward:.3f} now. "
    return found.model_copy(update={"seen": f"{fall}{found.sentence.removesuffix('.')}"})


def broken_by_update(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> Finding | None:
    """The explanation if an update went too far, since then failures may come from the model; else None."""
    found = explanation_of(epochs, guards)
    return found if found is not None and found.cause == rate_too_high.name else None


def with_explanation(message: str, remedy: str, found: Finding | None) -> tuple[str, str]:
    """The message and the remedy of an error. An explanation extends the message and replaces the remedy."""
    return (message, remedy) if found is None else (f"{message}\n  {found.sentence}", found.remedy)

"""Tell when the held-out score has fallen, though a run goes on, and why. Pure."""

from collections.abc import Callable, Sequence
from statistics import fmean

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis import diagnose, has_fallen
from nat.finetuning.verdict import compare
from nat.runs.epochs import shown, when
from nat.runs.records import EpochRecord, ValidationRecord, Verdict


def held_out_warning(
    validations: Sequence[ValidationRecord], epochs: Callable[[], Sequence[EpochRecord]], config: GuardsConfig
) -> str | None:
    """A sentence at the validation that shows the fall: to below the first score, or far below the best.

    By more than chance on the same examples, as the verdict judges it; far is `collapse_share` of the height above
    the worst score seen, as for the rewards in training. Epochs are read only to explain a fall.
    """
    if not _fallen(validations, config) or _fallen(validations[:-1], config):
        return None
    best, last = max(validations[:-1], key=_mean), validations[-1]
    return (
        f"The held-out score fell from {_mean(best):.3f} {when(best.epoch)} to {_mean(last):.3f} {when(last.epoch)}. "
        f"{_why([epoch for epoch in epochs() if epoch.epoch < last.epoch])}"
    )


def _fallen(validations: Sequence[ValidationRecord], config: GuardsConfig) -> bool:
    if len(validations) < 2:  # noqa: PLR2004 - a fall takes two
        return False
    *earlier, last = validations
    best = max(earlier, key=_mean)
    worst = min(reward for validation in validations for reward in validation.rewards)
    far = _mean(last) - worst < config.collapse_share * (_mean(best) - worst)
    return _worse(earlier[0], last) or (far and _worse(best, last))


def _worse(before: ValidationRecord, after: ValidationRecord) -> bool:
    scored = {example for example, score in before.scores.items() if score is not None}
    both = any(after.scores.get(example) is not None for example in scored)
    return both and compare(before.scores, after.scores).verdict is Verdict.WORSE


def _why(epochs: Sequence[EpochRecord]) -> str:
    """The rewards in training tell a model that learned the wrong thing from one that broke."""
    if epochs and not has_fallen(epochs):
        return (
            f"The mean reward in training did not ({epochs[-1].avg_reward:.3f} in epoch {shown(epochs[-1].epoch)}): "
            "the model learns its examples by heart, or something that the evaluator should not reward. Use more "
            "examples or fewer epochs, set beta, and read its answers."
        )
    found = diagnose(epochs)
    return "The cause is not known." if found is None else f"{found.seen} {found.remedy}"


def _mean(validation: ValidationRecord) -> float:
    return fmean(validation.rewards)

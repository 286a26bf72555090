"""The catalogue of conditions, and how epochs are judged by it. Pure.

The conditions stand in the order of a run's stages: rollouts, answers, scores, updates, held-out examples. Each takes a
share of the learning signal that the stages before it have left, and the shares are compared: where all answers are
cut off, it does not count for much that no score differs. An update that went too far comes before the answers, since
it breaks them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.condition import Condition
from nat.finetuning.diagnosis.conditions_of_rollouts import OF_ANSWERS, OF_ROLLOUTS, answers_alike, truncation
from nat.finetuning.diagnosis.conditions_of_scores import OF_SCORES
from nat.finetuning.diagnosis.conditions_of_updates import OF_UPDATES, rate_too_high
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import EpochRecord, Finding
from nat.wire.training import Compares

CONDITIONS: Sequence[Condition] = (*OF_ROLLOUTS, rate_too_high, *OF_ANSWERS, *OF_SCORES, *OF_UPDATES)
BEFORE_UPDATES: Sequence[Condition] = (*OF_ROLLOUTS, *OF_ANSWERS, *OF_SCORES)
"""Those that can be judged without an update."""
LEAST_SHARE = 0.05
"""Share of the signal below which a finding is not reported."""
_LONGEST = max(condition.warns_over for condition in CONDITIONS)
_ENOUGH = 5
"""Epochs from which on a warning over as many, or more, is given."""


@dataclass(frozen=True)
class Diagnosis:
    """What keeps a run from learning, the likeliest first."""

    window: Window
    findings: Sequence[Finding]

    @property
    def healthy(self) -> bool:
        """True if the run has learned, and nothing is wrong with it."""
        return self.window.learned and not self.findings


def diagnosis_of(window: Window, conditions: Sequence[Condition] = CONDITIONS, *, ended: bool = True) -> Diagnosis:
    """Judge a run. One that has learned can have only conditions for which a rising reward is no excuse.

    A run that goes on cannot be too short.
    """
    left = 1.0
    found: list[Finding] = []
    for condition in conditions:
        if (ended or not condition.of_the_end) and (finding := condition.found(window)):
            share = left * finding.share
            left -= share
            found.append(finding.model_copy(update={"share": round(share, 3)}))
    ranked = sorted(found, key=lambda finding: -finding.share)
    return Diagnosis(window, [f for f in ranked if f.share >= LEAST_SHARE or f is ranked[0]])


def alarms(epochs: Sequence[EpochRecord], guards: GuardsConfig, compares: Compares = "group") -> list[Finding]:
    """What the last of `epochs` is to be warned of; if the mean reward has fallen, why it has."""
    found = []
    for each in CONDITIONS:
        if each.warns_over and len(epochs) >= min(each.warns_over, _ENOUGH):
            before, last = epochs[: -each.warns_over], epochs[-each.warns_over :]
            if finding := each.found(Window(last, before, guards=guards, compares=compares)):
                found.append(finding)
    fall = explanation_of(epochs, guards) if found and Window(epochs, guards=guards).fallen else None
    return found if fall is None else [fall]


def kept(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> list[EpochRecord]:
    """The epochs that guards and alarms read: the first, the last, and those with the lowest and the highest reward.

    Their number is bounded, however long the run; of those kept and the newest epoch, the same are kept.
    """
    first = epochs[: guards.collapse_epochs]
    extremes = min(epochs, key=lambda epoch: epoch.min_reward), max(epochs, key=lambda epoch: epoch.max_reward)
    last = epochs[-max(_LONGEST, guards.epochs_without_signal, 2 * guards.collapse_epochs) :]
    found = {epoch.epoch: epoch for epoch in (*first, *extremes, *last)}
    return [found[number] for number in sorted(found)]


def explanation_of(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> Finding | None:
    """What changed since the epoch with the best mean reward; None if nothing that is known did.

    Every error that names a cause asks first: a model that a single update has broken looks like examples that are too
    hard, like a workflow that fails, or like a gradient of zero.
    """
    if not epochs:
        return None
    best = max(range(len(epochs)), key=lambda place: (epochs[place].avg_reward, place))
    before = Window(epochs[:best], guards=guards)
    since = Window(epochs[best:], epochs[:best], guards=guards, since_best=True)
    found = ((each.found(since), each.found(before)) for each in (rate_too_high, truncation, answers_alike))
    return next((now for now, then in found if now is not None and then is None), None)


def broken_by_update(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> Finding | None:
    """The explanation if an update went too far, since then failures may come from the model; else None."""
    found = explanation_of(epochs, guards)
    return found if found is not None and found.cause == rate_too_high.name else None

"""How epochs are judged by the conditions: a diagnosis, the warnings of the last epochs, what explains a fall. Pure.

Each condition takes a share of the learning signal that the stages before it have left, and the shares are compared:
where all answers are cut off, it does not count for much that no score differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.conditions import CONDITIONS, answers_alike, rate_too_high, truncation
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import EpochRecord, Finding
from nat.wire.training import Compares

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

    def __str__(self) -> str:
        window, change = self.window, self.window.change
        reward = "" if change is None else f" The mean reward was {change}."
        if not window.played and (losses := window.values("train/loss")):
            reward = f" The loss on the file's rows was {losses[0]:.3f} at first, {losses[-1]:.3f} in the last epoch."
            reward += "" if window.held_out is None else f" Held-out: {window.held_out.sentence}"
        if not self.findings:
            return f"{'Healthy: the run has learned.' if self.healthy else 'No cause found.'}{reward}"
        rises = change is not None and change.rose
        judged = "Rising, with a caveat." if window.learned else "Rising slowly." if rises else "Not learning."
        paragraphs = (
            f"{number}. {each.title} ({each.share:.0%} of the signal)\n"
            f"   seen     {each.seen}\n   healthy  {each.healthy}\n   change   {each.remedy}"
            for number, each in enumerate(self.findings, 1)
        )
        return "\n\n".join([f"{judged}{reward}", *paragraphs])


def diagnosis_of(window: Window) -> Diagnosis:
    """Judge a run. One that has learned can have only conditions for which a rising reward is no excuse."""
    left, found = 1.0, list[Finding]()
    for finding in filter(None, (each.found(window) for each in CONDITIONS)):
        found.append(finding.model_copy(update={"share": round(left * finding.share, 3)}))
        left *= 1 - finding.share
    ranked = sorted(found, key=lambda finding: -finding.share)
    return Diagnosis(window, [each for each in ranked if each.share >= LEAST_SHARE or each is ranked[0]])


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

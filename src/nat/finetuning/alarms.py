"""Warnings about the last epochs of a run, by the conditions that have a span. Pure.

A metric that the backend does not report raises no alarm.
"""

from collections.abc import Sequence

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.catalogue import CONDITIONS
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.fall import explanation_of_fall
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import EpochRecord, Finding
from nat.wire.training import Compares

LONGEST = max(condition.warns_over for condition in CONDITIONS)


def alarms(epochs: Sequence[EpochRecord], guards: GuardsConfig, compares: Compares = "group") -> list[Finding]:
    """What the last of `epochs` is to be warned of. If the mean reward has fallen, the remedy is that of the fall."""
    found = []
    for each in CONDITIONS:
        if each.warns_over and len(epochs) >= each.warns_from:
            window = Window(epochs[-each.warns_over :], epochs[: -each.warns_over], Facts(compares=compares), guards)
            if finding := each.found(window, excused=window.goes_well):
                found.append(finding)
    fall = explanation_of_fall(epochs, guards) if found else None
    if fall is None:
        return found
    advice = f"{fall.sentence} {fall.remedy}"
    return [each if each.cause == fall.cause else each.model_copy(update={"remedy": advice}) for each in found]


def kept(epochs: Sequence[EpochRecord], guards: GuardsConfig) -> list[EpochRecord]:
    """The epochs that guards and alarms read: the first, the last, and those with the lowest and the highest reward.

    Their number is bounded, however long the run; of those kept and the newest epoch, the same are kept.
    """
    first = epochs[: guards.collapse_epochs]
    extremes = min(epochs, key=lambda epoch: epoch.min_reward), max(epochs, key=lambda epoch: epoch.max_reward)
    last = epochs[-max(LONGEST, guards.epochs_without_signal, 2 * guards.collapse_epochs) :]
    found = {epoch.epoch: epoch for epoch in (*first, *extremes, *last)}
    return [found[number] for number in sorted(found)]

"""The catalogue of conditions, and how a window of epochs is judged by it. Pure.

The conditions stand in the order of a run's stages: rollouts, answers, scores, updates, held-out examples. Each takes a
share of the learning signal that the stages before it have left, and the shares are compared: where all answers are
cut off, it does not count for much that no score differs. An update that went too far comes before the answers, since
it breaks them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nat.finetuning.diagnosis.condition import Condition
from nat.finetuning.diagnosis.conditions_of_held_out import OF_HELD_OUT
from nat.finetuning.diagnosis.conditions_of_large_updates import OF_LARGE_UPDATES
from nat.finetuning.diagnosis.conditions_of_rollouts import OF_ANSWERS, OF_ROLLOUTS
from nat.finetuning.diagnosis.conditions_of_scores import OF_SCORES
from nat.finetuning.diagnosis.conditions_of_scores_beside import reward_alone_rises
from nat.finetuning.diagnosis.conditions_of_updates import OF_UPDATES, unexplained
from nat.finetuning.diagnosis.window import Window
from nat.runs.records import Finding

CONDITIONS: Sequence[Condition] = (
    *OF_ROLLOUTS,
    *OF_LARGE_UPDATES,
    *OF_ANSWERS,
    *OF_SCORES,
    reward_alone_rises,
    *OF_UPDATES,
    *OF_HELD_OUT,
    unexplained,
)
LEAST_SHARE = 0.05
"""Share of the signal below which a finding is not reported."""


@dataclass(frozen=True)
class Diagnosis:
    """What keeps a run from learning, the likeliest first; nothing if it is healthy."""

    window: Window
    findings: Sequence[Finding]

    @property
    def healthy(self) -> bool:
        return not self.findings


def diagnosis_of(window: Window, conditions: Sequence[Condition] = CONDITIONS, *, ended: bool = True) -> Diagnosis:
    """Judge a run. One that has learned can have only conditions for which a rising reward is no excuse.

    A run that goes on cannot be too short.
    """
    left = 1.0
    found: list[Finding] = []
    for condition in conditions:
        if (condition.of_the_end and not ended) or (condition.alone and found):
            continue
        if finding := condition.found(window, excused=window.has_learned):
            share = left * finding.share
            left -= share
            found.append(finding.model_copy(update={"share": round(share, 3)}))
    ranked = sorted(found, key=lambda finding: -finding.share)
    return Diagnosis(window, [f for f in ranked if f.share >= LEAST_SHARE or f is ranked[0]])

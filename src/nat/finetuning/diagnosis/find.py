"""Find the likely causes in the evidence, the likeliest first. Pure.

The causes stand in the order of a run's stages: rollouts, answers, scores, updates, held-out examples. Each takes a
share of the learning signal that the stages before it have left, and the shares are compared: where all answers are
cut off, it does not count for much that no score differs. An update that went too far comes before the answers, since
it breaks them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nat.finetuning.diagnosis.cause import Cause
from nat.finetuning.diagnosis.causes_of_held_out import CAUSES_OF_HELD_OUT
from nat.finetuning.diagnosis.causes_of_rollouts import CAUSES_OF_ANSWERS, CAUSES_OF_ROLLOUTS
from nat.finetuning.diagnosis.causes_of_scores import CAUSES_OF_SCORES
from nat.finetuning.diagnosis.causes_of_updates import CAUSES_OF_UPDATES, rate_too_high, unexplained
from nat.finetuning.diagnosis.evidence import Evidence
from nat.runs.records import Finding

CAUSES: Sequence[Cause] = (
    *CAUSES_OF_ROLLOUTS,
    rate_too_high,
    *CAUSES_OF_ANSWERS,
    *CAUSES_OF_SCORES,
    *CAUSES_OF_UPDATES,
    *CAUSES_OF_HELD_OUT,
    unexplained,
)
LEAST_SHARE = 0.05
"""Share of the signal below which a cause is not reported."""


@dataclass(frozen=True)
class Diagnosis:
    """The causes of a run's flat reward, the likeliest first; none if it is healthy."""

    evidence: Evidence
    findings: Sequence[Finding]

    @property
    def healthy(self) -> bool:
        return not self.findings


def diagnosis_of(evidence: Evidence, *, ended: bool = True) -> Diagnosis:
    """Judge a run. One that has learned can have only causes for which a rising reward is no excuse.

    A run that goes on cannot be too short.
    """
    left, found = 1.0, []
    for cause in CAUSES:
        if (evidence.has_learned and not cause.despite_learning) or (cause.of_the_end and not ended):
            continue
        if not evidence.played and not cause.without_rollouts:
            continue
        if (seen := cause.check(evidence)) is None:
            continue
        share = left * min(1.0, max(0.0, seen.share))
        left -= share
        found.append(
            Finding(
                cause=cause.name,
                title=cause.title,
                share=round(share, 3),
                seen=seen.numbers,
                healthy=cause.healthy,
                remedy=f"{seen.advice} {cause.remedy}".strip(),
            )
        )
    ranked = sorted(found, key=lambda finding: -finding.share)
    return Diagnosis(evidence, [f for f in ranked if f.share >= LEAST_SHARE or f is ranked[0]])

"""Why a step is no candidate, two candidates are no pair, and a pair is not trained on; counted, never guessed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class SkipCause(StrEnum):
    """The value is the text that users see after a count."""

    NOT_TTC = "a step of that name is no TTC_END step"
    NEVER_ENDED = "a TTC_START has no TTC_END"
    NOT_TARGET = "a candidate was pushed by a function outside finetuning.target_functions"
    BAD_DATA = "a TTC_END step has no readable TTCEventData"
    NO_TURN = "a candidate has no turn_id"
    NO_SCORE = "a candidate has no score"
    BAD_SCORE = "a candidate's score is not a finite number"
    BAD_PROMPT = "a candidate's prompt cannot be read"
    BAD_RESPONSE = "a candidate's response is no text"
    SINGLE_CANDIDATE = "a turn has a single candidate"
    DIFFERENT_PROMPTS = "two candidates of a turn have different prompts"
    EQUAL_RESPONSES = "two candidates of a turn have the same response"
    TIE = "two candidates of a turn have equal scores"
    SCORE_DIFF = "two candidates of a turn differ by less than min_score_diff"
    TURN_CAP = "a pair is beyond max_pairs_per_turn"
    EXAMPLE_CAP = "a pair is beyond max_pairs_per_example"
    NO_PAIR = "the trajectory has no preference pair (DPOItem)"
    DUPLICATE = "the same pair was collected before"
    NOT_DRAWN = "max_pairs was reached"

    @property
    def suspicious(self) -> bool:
        """True if it is likely a mistake; scorers tie, models repeat themselves, and a limit is a choice."""
        return self not in _EXPECTED

    @property
    def remedy(self) -> str:
        """What helps where it left no pair."""
        return _REMEDIES[self]


_EXPECTED = frozenset(
    {
        SkipCause.NOT_TARGET,
        SkipCause.EQUAL_RESPONSES,
        SkipCause.TIE,
        SkipCause.SCORE_DIFF,
        SkipCause.TURN_CAP,
        SkipCause.EXAMPLE_CAP,
    }
)

OF_A_JOB = frozenset({SkipCause.NO_PAIR, SkipCause.DUPLICATE, SkipCause.NOT_DRAWN})
"""Those of pairs that were collected; the builder counts all others."""

PUSH = "data=TTCEventData(turn_id=…, candidate_index=…, score=…, input=prompt, output=response)"
"""What a candidate's step must carry, for messages."""

_REMEDIES = {
    SkipCause.NOT_TTC: f"Push candidates as IntermediateStepType.TTC_END with {PUSH}.",
    SkipCause.NEVER_ENDED: "Push a TTC_END with the UUID of the TTC_START, or TTC_END alone.",
    SkipCause.NOT_TARGET: "Name the function that pushes the candidates in finetuning.target_functions, or set it to "
    "[<workflow>] for all.",
    SkipCause.BAD_DATA: f"Push candidates with {PUSH}.",
    SkipCause.NO_TURN: "Set turn_id: candidates with the same one answer the same prompt and are compared.",
    SkipCause.NO_SCORE: "Score each candidate before its TTC_END is pushed.",
    SkipCause.BAD_SCORE: "Look for a division by zero in the scorer, and push a finite number.",
    SkipCause.BAD_PROMPT: "Set input to the prompt before the answer: a text, or messages with role and text.",
    SkipCause.BAD_RESPONSE: "Set output to the text that the model answered.",
    SkipCause.SINGLE_CANDIDATE: "Give all candidates of a turn the same turn_id, and sample at least two; where "
    "single ones are meant, set require_multiple_candidates: false.",
    SkipCause.DIFFERENT_PROMPTS: "Give candidates the same turn_id only if they answer the same prompt.",
    SkipCause.EQUAL_RESPONSES: "Sample at a higher temperature, so that the candidates of a turn differ.",
    SkipCause.TIE: "A tie is no preference: let the scorer distinguish the candidates, or sample more of them.",
    SkipCause.SCORE_DIFF: "Lower min_score_diff.",
    SkipCause.TURN_CAP: "Raise max_pairs_per_turn.",
    SkipCause.EXAMPLE_CAP: "Raise max_pairs_per_example.",
    SkipCause.NO_PAIR: "Use a trajectory builder that gives pairs, such as dpo_traj_builder, and let the workflow "
    "score several candidates per turn.",
}


class Skipped(NamedTuple):
    """One step, turn or pair that was left out."""

    cause: SkipCause
    where: str
    """Its place and what was seen there, for a message."""


@dataclass(frozen=True)
class SkipCount:
    """How often one cause occurred, and the first place."""

    cause: SkipCause
    count: int
    first: str

    def __str__(self) -> str:
        return f"{self.count} x {self.cause}; first: {self.first}"


def counted(skipped: Iterable[Skipped]) -> list[SkipCount]:
    """One count per cause, the most frequent first."""
    counts: Counter[SkipCause] = Counter()
    first: dict[SkipCause, str] = {}
    for cause, where in skipped:
        counts[cause] += 1
        first.setdefault(cause, where)
    return [SkipCount(cause, count, first[cause]) for cause, count in counts.most_common()]

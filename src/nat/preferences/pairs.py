"""What makes a pair of a better and a worse answer. Training, adapters and exports have this one rule.

Two answers to the same prompt are a pair if they differ, and so do their scores. The rule compares scores; `parting`
compares the prompts and answers of whole rollouts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import isfinite
from typing import Literal, TypeVar

from nat.wire import rewards

Pairing = Literal["best_worst", "all"]
PairT = TypeVar("PairT")


class SkipCause(StrEnum):
    """Why a step is no candidate, two candidates are no pair, or a pair is not trained on; with a remedy."""

    remedy: str
    """What helps where it left no pair."""

    def __new__(cls, text: str, remedy: str = "") -> "SkipCause":
        cause = str.__new__(cls, text)
        cause._value_, cause.remedy = text, remedy
        return cause

    NOT_TARGET = (
        "a candidate was pushed by a function outside finetuning.target_functions",
        "Name the function that pushes the candidates in finetuning.target_functions, or set it to [<workflow>].",
    )
    BAD_DATA = (
        "a TTC_END step has no readable TTCEventData with a turn_id",
        "Push candidates with data=TTCEventData(turn_id=…, score=…, input=prompt, output=response); candidates with "
        "the same turn_id answer the same prompt and are compared.",
    )
    BAD_SCORE = (
        "a candidate's score is not a finite number",
        "Score each candidate before its TTC_END is pushed, with a finite number.",
    )
    BAD_PROMPT = (
        "a candidate's prompt cannot be read",
        "Set input to the prompt before the answer: a text, or messages with role and text.",
    )
    BAD_RESPONSE = "a candidate's response is no text", "Set output to the text that the model answered."
    SINGLE_CANDIDATE = (
        "a turn has a single candidate",
        "Give all candidates of a turn the same turn_id, and sample at least two; where single ones are meant, set "
        "require_multiple_candidates: false.",
    )
    DIFFERENT_PROMPTS = (
        "two candidates of a turn have different prompts",
        "Give candidates the same turn_id only if they answer the same prompt.",
    )
    EQUAL_RESPONSES = (
        "two candidates of a turn have the same response",
        "Sample at a higher temperature, so that the candidates of a turn differ.",
    )
    TIE = (
        "two candidates of a turn have equal scores",
        "A tie is no preference: let the scorer distinguish the candidates, or sample more of them.",
    )
    SCORE_DIFF = "two candidates of a turn differ by less than min_score_diff", "Lower min_score_diff."
    TURN_CAP = "a pair is beyond max_pairs_per_turn"
    NO_PAIR = (
        "the trajectory has no preference pair (DPOItem)",
        "Use a trajectory builder that gives pairs, such as dpo_traj_builder, and let the workflow score several "
        "candidates per turn.",
    )
    DUPLICATE = "the same pair was collected before"
    NOT_DRAWN = "max_pairs was reached"


@dataclass(frozen=True)
class PairRule:
    """Which answers to one prompt are pairs."""

    margin: float = 0.0
    """The least difference of two scores, up to rounding. Equal scores are no preference, not even at 0."""
    which: Pairing = "all"
    """Every two answers, or the pair with the widest difference alone."""
    most: int | None = None
    """The most pairs, those with the widest differences; None for all."""

    def undecided(self, better: float, worse: float) -> SkipCause | None:
        """Why two scores do not tell which answer is better; None if they do."""
        scores = [better, worse]
        if rewards.equal(scores):
            return SkipCause.TIE
        return SkipCause.SCORE_DIFF if better - worse < self.margin - rewards.rounding(scores) else None

    def choose(
        self, scores: Sequence[float], compare: Callable[[int, int], PairT | str]
    ) -> tuple[list[PairT], list[tuple[int, int, str]], list[tuple[int, int, SkipCause]]]:
        """The pairs, those that `compare` refuses, and those that scores or limit exclude; the widest difference first.

        `compare` gets the indices of the better and the worse answer, and gives the pair, or the reason why their texts
        make none; it is not asked about the last ones. An answer whose score is not finite is in none of the three.
        """
        pairs: list[PairT] = []
        refused: list[tuple[int, int, str]] = []
        excluded: list[tuple[int, int, SkipCause]] = []
        most = 1 if self.which == "best_worst" else self.most
        for better, worse in _by_difference(scores):
            cause = self.undecided(scores[better], scores[worse])
            if cause is not None or len(pairs) == most:
                excluded.append((better, worse, cause or SkipCause.TURN_CAP))
            elif isinstance(found := compare(better, worse), str):
                refused.append((better, worse, found))
            else:
                pairs.append(found)
        return pairs, refused, excluded


def _by_difference(scores: Sequence[float]) -> list[tuple[int, int]]:
    """All index pairs, the higher score first, the widest difference first.

    Among equal differences, answers that are in no pair yet come first, so that the first few pairs use many of them.
    """
    finite = [index for index, score in enumerate(scores) if isfinite(score)]
    counts, ranks = Counter[float](), list[int]()
    for score in scores:
        ranks.append(counts[score])
        counts[score] += 1

    def order(pair: tuple[int, int]) -> tuple[float, int]:
        better, worse = pair
        fewer = min(counts[scores[better]], counts[scores[worse]])
        return scores[worse] - scores[better], (ranks[worse] - ranks[better]) % fewer

    return sorted(((a, b) if scores[a] >= scores[b] else (b, a) for a, b in combinations(finite, 2)), key=order)

"""What makes a pair of a better and a worse answer. Training, adapters and exports have this one rule.

Two answers to the same prompt are a pair if they differ, and so do their scores. The rule compares scores; `parting`
compares the prompts and answers of whole rollouts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from typing import Literal, TypeVar

from nat.preferences.skips import SkipCause
from nat.wire import rewards

Pairing = Literal["best_worst", "all"]
PairT = TypeVar("PairT")


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
            cause = self.undecided(scores[better], scores[worse]) or (
                SkipCause.TURN_CAP if len(pairs) == most else None
            )
            if cause is not None:
                excluded.append((better, worse, cause))
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
    ranks, counts = list(_ranks(scores)), Counter(scores)

    def order(pair: tuple[int, int]) -> tuple[float, int]:
        better, worse = pair
        fewer = min(counts[scores[better]], counts[scores[worse]])
        return scores[worse] - scores[better], (ranks[worse] - ranks[better]) % fewer

    return sorted(((a, b) if scores[a] >= scores[b] else (b, a) for a, b in combinations(finite, 2)), key=order)


def _ranks(scores: Sequence[float]) -> Iterator[int]:
    """Each index's place among those of the same score."""
    seen: Counter[float] = Counter()
    for score in scores:
        yield seen[score]
        seen[score] += 1

"""What the rollouts of an epoch tell about their score: noise, dependence on the answer and its length. Pure.

Rollouts are compared with others of the same example only, since examples differ in difficulty.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, takewhile
from math import inf, log, sqrt
from operator import attrgetter
from statistics import fmean
from sys import intern
from typing import Any

from nat.data_models.score import mean
from nat.runs.rollouts import RolloutRecord
from nat.wire.rewards import equal

MIN_REPEATS = 30
"""Repeated outputs below which the noise of a score is unknown: the relative error of a variance from n repeats is
√(2/n), here 26 %."""
STANDARD_ERRORS = 2.0
"""A difference of more standard errors is called one; chance makes one of this size in 5 of 100 cases."""

Key = Callable[[RolloutRecord], Hashable]
"""What makes two rollouts of an example equal."""


@dataclass(frozen=True)
class ScoreSpread:
    """The spread of scores inside examples, and the part of it between equal rollouts; sums of epochs add up."""

    compared: int = 0
    """Degrees of freedom: rollouts with a score, less their examples."""
    squares: float = 0.0
    """Sum of the squared differences from the example's mean."""
    repeats: int = 0
    """Degrees of freedom between equal rollouts: rollouts that repeat another one of their example."""
    repeat_squares: float = 0.0
    """Sum of the squared differences from the mean of the equal rollouts."""

    def __add__(self, other: "ScoreSpread") -> "ScoreSpread":
        return ScoreSpread(
            self.compared + other.compared,
            self.squares + other.squares,
            self.repeats + other.repeats,
            self.repeat_squares + other.repeat_squares,
        )

    @property
    def noise_share(self) -> float | None:
        """Share of the variance that equal rollouts have, too; None with too few repeats, or without any variance."""
        if self.repeats < MIN_REPEATS or self.squares <= 0:
            return None
        return min(1.0, (self.repeat_squares / self.repeats) / (self.squares / self.compared))

    @property
    def dependence(self) -> float:
        """How much more different rollouts differ in score than equal ones, in standard errors of an F test.

        Infinite if equal rollouts have equal scores, or if too few are equal to tell.
        """
        others, squares = self.compared - self.repeats, self.squares - self.repeat_squares
        if self.noise_share is None or self.repeat_squares <= 0:
            return inf
        if others < MIN_REPEATS or squares <= 0:
            return 0.0
        ratio = (squares / others) / (self.repeat_squares / self.repeats)
        return log(ratio) / sqrt(2 / others + 2 / self.repeats)

    @property
    def depends_on_output(self) -> bool:
        """True unless that may well be chance."""
        return self.dependence > STANDARD_ERRORS


def score_spread(records: Iterable[RolloutRecord], key: Key) -> ScoreSpread:
    """The spread of the scores of one epoch; `key` makes rollouts equal."""
    total = ScoreSpread()
    for own in by_example(records):
        total += ScoreSpread(compared=len(own) - 1, squares=_squares([_score(r) for r in own]))
        alike: dict[Hashable, list[float]] = {}
        for record in own:
            alike.setdefault(key(record), []).append(_score(record))
        for scores in alike.values():
            total += ScoreSpread(repeats=len(scores) - 1, repeat_squares=_squares(scores))
    return total


def what_was_scored(record: RolloutRecord) -> Hashable:
    """All that the evaluator could see of a rollout: its output, and who said what; ids of tool calls are random."""
    return record.output, tuple(map(_said, record.messages))


def what_was_trained(record: RolloutRecord) -> Hashable:
    """The tokens that the rollout is trained on, with the prompts before them."""
    return tuple(tuple(row.token_ids) for row in record.rows)


def share_of_equal_outputs(records: Iterable[RolloutRecord]) -> float | None:
    """Share of the examples whose rollouts are all equal, so that their scores can differ by noise alone."""
    groups = [own for own in by_example(records) if len(own) > 1]
    return fmean(len({what_was_scored(record) for record in own}) == 1 for own in groups) if groups else None


def length_correlation(records: Iterable[RolloutRecord]) -> float | None:
    """Correlation of score and sampled tokens, inside examples and among rollouts with equally many calls.

    The calls are held fixed, because an agent that uses its tools is often both longer and better. None if one of the
    two never differs.
    """
    xs: list[float] = []
    ys: list[float] = []
    for own in by_example(records):
        for _, alike in groupby(sorted(own, key=attrgetter("num_calls")), key=attrgetter("num_calls")):
            rollouts = list(alike)
            xs += _centred([float(record.completion_tokens) for record in rollouts])
            ys += _centred([_score(record) for record in rollouts])
    spread = sqrt(sum(x * x for x in xs) * sum(y * y for y in ys))
    return sum(x * y for x, y in zip(xs, ys, strict=True)) / spread if spread > 0 else None


def tokens_by_outcome(records: Iterable[RolloutRecord]) -> tuple[float, float] | None:
    """Mean sampled tokens of the rollouts that score above, and below, the mean of their example."""
    above: list[int] = []
    below: list[int] = []
    for own in by_example(records):
        scores = [_score(record) for record in own]
        if equal(scores):
            continue
        for record, difference in zip(own, _centred(scores), strict=True):
            if difference:
                (above if difference > 0 else below).append(record.completion_tokens)
    return (fmean(above), fmean(below)) if above and below else None


def success_by_example(records: Iterable[RolloutRecord]) -> dict[str, float]:
    """Mean score of each example that has one."""
    return {own[0].example_id: mean([_score(record) for record in own]) for own in by_example(records)}


def shares_at_lowest(records: Iterable[RolloutRecord]) -> tuple[float | None, float | None]:
    """Share of the truncated rollouts that have the lowest score of all, and share of the others.

    None for those that there are none of, and for both if none is truncated.
    """
    scored = [record for record in records if record.reward is not None]
    lowest = min(map(_score, scored), default=0.0)
    cut, whole = ([equal([_score(r), lowest]) for r in scored if r.truncated is each] for each in (True, False))
    return (fmean(cut), fmean(whole) if whole else None) if cut else (None, None)


def share_of_trained_tokens(records: Iterable[RolloutRecord]) -> float | None:
    """Share of all sampled tokens that the training rows have; None where the server reports no tokens."""
    called = [record for record in records if record.completion_tokens and not _failed(record)]
    if not called or any(record.left_out is None and not record.rows for record in called):
        return None
    trained = sum(row.num_sampled for record in called for row in record.rows)
    return min(1.0, trained / sum(record.completion_tokens for record in called))


def share_without_calls(records: Iterable[RolloutRecord]) -> float | None:
    """Share of the rollouts that ended well and in which no LLM call was seen, where calls are recorded."""
    ended = [record for record in records if not _failed(record) and record.num_calls is not None]
    return fmean(record.num_calls == 0 for record in ended) if ended else None


def unseen_words(
    held_out: Iterable[RolloutRecord], known: Iterable[RolloutRecord]
) -> tuple[float | None, float | None]:
    """Share of the words of a held-out example that no other example of `known` has, averaged over the examples.

    The second share is that of the examples of `known` themselves: what is usual between those of one distribution.
    """
    others = _words_by_example(known)
    holders = Counter(chain.from_iterable(others.values()))

    def share(examples: Mapping[str, Sequence[str]]) -> float | None:
        shares = []
        for example, words in examples.items():
            own = set(others.get(example, ()))
            shares += [sum(holders[word] <= (word in own) for word in words) / len(words)] if words else []
        return fmean(shares) if shares else None

    return share(_words_by_example(held_out)), share(others)


def _words_by_example(records: Iterable[RolloutRecord]) -> dict[str, Sequence[str]]:
    """The different words of each example's first messages, up to the model's first answer."""
    found: dict[str, Sequence[str]] = {}
    for record in records:
        if record.example_id not in found:
            prompt = takewhile(lambda message: message.get("role") != "assistant", record.messages)
            words = {intern(word) for each in prompt for word in str(each.get("content")).lower().split()}
            found[record.example_id] = tuple(words)  # a set would take six times the memory
    return found


def by_example(records: Iterable[RolloutRecord]) -> list[Sequence[RolloutRecord]]:
    """The rollouts that have a score, by example."""
    found: dict[str, list[RolloutRecord]] = {}
    for record in records:
        if record.reward is not None:
            found.setdefault(record.example_id, []).append(record)
    return list(found.values())


def _said(message: Mapping[str, Any]) -> tuple[str, ...]:
    calls = message.get("tool_calls") or ()
    functions = [str(call.get("function")) for call in calls if isinstance(call, Mapping)]
    return str(message.get("role")), str(message.get("content")), *functions


def _failed(record: RolloutRecord) -> bool:
    return record.left_out is not None and record.left_out.failure


def _score(record: RolloutRecord) -> float:
    assert record.reward is not None, "rollouts without a score are left out before"
    return record.reward


def _centred(values: Sequence[float]) -> list[float]:
    middle = fmean(values)
    return [value - middle for value in values]


def _squares(values: Sequence[float]) -> float:
    """Sum of the squared differences from the mean, exactly 0 where the values differ by rounding only."""
    return 0.0 if equal(values) else sum(difference**2 for difference in _centred(values))

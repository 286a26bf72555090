"""What the rollouts of an epoch tell about their score: noise, dependence on the answer and its length. Pure.

Rollouts are compared with others of the same example only, since examples differ in difficulty.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from math import sqrt
from operator import attrgetter
from statistics import fmean
from typing import Any

from nat.data_models.score import mean
from nat.runs.rollouts import RolloutRecord
from nat.wire.rewards import equal

LOST_CALLS = "rollout/lost_calls_"
"""Prefix of the number of answers with a tool call that could not be read, by cause."""
_ERROR = re.compile(r"\W*(\w*error|\w*exception|traceback|failed|failure)\b", re.IGNORECASE)
"""The beginning of a tool's result that tells of an error, in prose or as the first key of JSON."""

Group = Sequence[RolloutRecord]
"""Rollouts of one example, each with a score."""


def score_metrics(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """How the score depends on what the model did."""
    groups = by_example(records)
    known = _spread(groups) | _lengths(groups) | _truncated(groups) | _calls(records)
    several = [own for own in groups if len(own) > 1]
    alike = [len({_scored(record) for record in own}) == 1 for own in several]
    known["rollout/equal_outputs"] = fmean(alike) if alike else None
    return {name: value for name, value in known.items() if value is not None}


def success_by_example(records: Iterable[RolloutRecord]) -> dict[str, float]:
    """Mean score of each example that has one."""
    return {own[0].example_id: mean([_score(record) for record in own]) for own in by_example(records)}


def by_example(records: Iterable[RolloutRecord]) -> list[Group]:
    """The rollouts that have a score, by example."""
    found: dict[str, list[RolloutRecord]] = {}
    for record in records:
        if record.reward is not None:
            found.setdefault(record.example_id, []).append(record)
    return list(found.values())


def _spread(groups: Sequence[Group]) -> dict[str, float | None]:
    """The variance of the scores inside examples, and the part of it between equal rollouts."""
    compared, squares = _squared([[_score(record) for record in own] for own in groups])
    repeats, of_repeats = _repeated(groups, _scored)
    trained = [[record for record in own if record.rows] for own in groups]
    row_repeats, of_rows = _repeated(trained, lambda record: tuple(tuple(row.token_ids) for row in record.rows))
    has_rows = sum(max(0, len(own) - 1) for own in trained) > 0
    return {
        "reward/compared": float(compared) if compared else None,
        "reward/example_variance": squares / compared if compared else None,
        "reward/repeats": float(repeats) if compared else None,
        "reward/repeat_variance": of_repeats / repeats if repeats else None,
        "reward/row_repeats": float(row_repeats) if has_rows else None,
        "reward/row_repeat_variance": of_rows / row_repeats if row_repeats else None,
    }


def _repeated(groups: Sequence[Group], key: Callable[[RolloutRecord], Hashable]) -> tuple[int, float]:
    """How many rollouts repeat another one of their example, and how their scores differ."""
    alike: dict[Hashable, list[float]] = {}
    for number, own in enumerate(groups):
        for record in own:
            alike.setdefault((number, key(record)), []).append(_score(record))
    return _squared(list(alike.values()))


def _squared(scores: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Degrees of freedom, and the sum of squared differences from each mean; 0 where they differ by rounding only."""
    squares = (0.0 if equal(own) else sum(each**2 for each in _centred(own)) for own in scores)
    return sum(len(own) - 1 for own in scores if own), sum(squares)


def _scored(record: RolloutRecord) -> Hashable:
    """All that the evaluator could see of a rollout: its output, and who said what; ids of tool calls are random."""
    return record.output, tuple(map(_said, record.messages))


def _said(message: Mapping[str, Any]) -> tuple[str, ...]:
    calls = message.get("tool_calls") or ()
    functions = [str(call.get("function")) for call in calls if isinstance(call, Mapping)]
    return str(message.get("role")), str(message.get("content")), *functions


def _lengths(groups: Sequence[Group]) -> dict[str, float | None]:
    """Correlation of score and sampled tokens, and the tokens of better and of worse rollouts.

    The correlation is among rollouts with equally many calls, because an agent that uses its tools is often both longer
    and better.
    """
    xs, ys = list[float](), list[float]()
    above, below = list[int](), list[int]()
    known = [[record for record in own if record.num_calls is not None] for own in groups]
    for own in filter(None, known):
        for _, alike in groupby(sorted(own, key=attrgetter("num_calls")), key=attrgetter("num_calls")):
            rollouts = list(alike)
            xs += _centred([float(record.completion_tokens) for record in rollouts])
            ys += _centred([_score(record) for record in rollouts])
        scores = [_score(record) for record in own]
        for record, difference in zip(own, [] if equal(scores) else _centred(scores), strict=False):
            if difference:
                (above if difference > 0 else below).append(record.completion_tokens)
    spread = sqrt(sum(x * x for x in xs) * sum(y * y for y in ys))
    both = bool(above and below)
    return {
        "reward/length_correlation": sum(x * y for x, y in zip(xs, ys, strict=True)) / spread if spread > 0 else None,
        "rollout/tokens_better": fmean(above) if both else None,
        "rollout/tokens_worse": fmean(below) if both else None,
    }


def _truncated(groups: Sequence[Group]) -> dict[str, float | None]:
    """Share of the truncated rollouts that have the lowest score of all, and share of the others."""
    scored = [record for own in groups for record in own]
    lowest = min(map(_score, scored), default=0.0)
    cut, whole = ([equal([_score(r), lowest]) for r in scored if r.truncated is each] for each in (True, False))
    return {
        "reward/truncated_lowest": fmean(cut) if cut else None,
        "reward/whole_lowest": fmean(whole) if cut and whole else None,
    }


def _calls(records: Sequence[RolloutRecord]) -> dict[str, float | None]:
    """What was recorded of the calls, and which of them could not be read or failed."""
    ended = [record for record in records if record.left_out is None or not record.left_out.failure]
    seen = [record.num_calls == 0 for record in ended if record.num_calls is not None]
    called = [record for record in ended if record.completion_tokens]
    unknown = not called or any(record.left_out is None and not record.rows for record in called)
    trained = sum(row.num_sampled for record in called for row in record.rows)
    results = [m for r in records if r.reward is not None for m in r.messages if m.get("role") == "tool"]
    errors = sum(_ERROR.match(str(message.get("content"))) is not None for message in results)
    lost = sum((Counter(record.lost_calls) for record in records), Counter[str]())
    if any("tool_calls" in message for record in records for message in record.messages):
        del lost["no_format"]  # the format that is tried for lack of another reads them
    sampled = sum(record.completion_tokens for record in called)
    return {
        "rollout/without_calls": fmean(seen) if seen else None,
        "rollout/trained_tokens": None if unknown else min(1.0, trained / sampled),
        "rollout/tool_errors": errors / len(results) if errors else None,
        **{f"{LOST_CALLS}{cause}": float(count) for cause, count in lost.items() if count},
    }


def _score(record: RolloutRecord) -> float:
    assert record.reward is not None, "rollouts without a score are left out before"
    return record.reward


def _centred(values: Sequence[float]) -> list[float]:
    middle = fmean(values)
    return [value - middle for value in values]

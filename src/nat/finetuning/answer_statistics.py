"""What expected answers, outputs and results of tools tell of an epoch's rollouts. Pure.

Each number is a sign of a mistake, so it is left out where it is zero.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from statistics import fmean

from nat.finetuning.rollout_statistics import by_example, what_was_trained
from nat.runs.rollouts import RolloutRecord
from nat.wire.rewards import equal

_ERROR = re.compile(r"\W*(\w*error|\w*exception|traceback|failed|failure)\b", re.IGNORECASE)
"""The beginning of a tool's result that tells of an error, in prose or as the first key of JSON."""


LOST_CALLS = "rollout/lost_calls_"
"""Prefix of the number of answers with a tool call that could not be read, by cause."""
LEAST_RIGHT = 0.05
"""Share of the rollouts that must have the expected answer and the lowest score: fewer may lack what else is wanted."""


def answer_metrics(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """The metrics above zero."""
    groups = by_example(records)
    scored = [record for own in groups for record in own]
    rewards = [record.reward or 0.0 for record in scored]
    low, high = min(rewards, default=0.0), max(rewards, default=0.0)
    solved = max(1.0, high) if equal([low, high]) else high  # a score that all have, below 1, may be the lowest
    found = {
        "rollout/answer_shown": _share(_solved_as_shown(own, solved) for own in groups),
        "rollout/output_alone": _share(map(_output_does_not_depend, groups)),
        "rollout/stopped_inside": _share(map(_stopped_inside, scored)),
        "rollout/tool_errors": _share(_ERROR.match(text) is not None for text in _results_of_tools(scored)),
    }
    lost = sum((Counter(record.lost_calls) for record in records), Counter[str]())
    if any("tool_calls" in message for record in records for message in record.messages):
        del lost["no_format"]  # the format that is tried for lack of another reads them
    found |= {f"{LOST_CALLS}{cause}": float(count) for cause, count in lost.items()}
    if low < high or equal([low, 0.0]):  # else the score that all have may be the highest
        found |= _misread(scored, low)
    return {name: value for name, value in found.items() if value}


def _misread(scored: Sequence[RolloutRecord], low: float) -> dict[str, float]:
    """How many of the right answers have the lowest score, and how many differ from the expected answer at all."""
    right = [record for record in scored if record.expected and _words(record.output) == _words(record.expected)]
    misread = sum(equal([record.reward or 0.0, low]) for record in right)
    if not right or misread < LEAST_RIGHT * len(scored):
        return {}
    unlike = _share(record.output != record.expected for record in right)
    return {"reward/right_lowest": misread / len(right), "reward/right_unlike": unlike}


def _solved_as_shown(own: Sequence[RolloutRecord], top: float) -> bool:
    """True if the prompt has the expected answer, and every rollout the highest score."""
    wanted = _words(own[0].expected)
    prompt = takewhile(lambda message: message.get("role") != "assistant", own[0].messages)
    shown = any(f" {wanted} " in f" {_words(str(message.get('content')))} " for message in prompt)
    return bool(wanted) and shown and all(equal([record.reward or 0.0, top]) for record in own)


def _output_does_not_depend(own: Sequence[RolloutRecord]) -> bool:
    """True if the model sampled different answers, and the workflow's output was the same."""
    trained = [record for record in own if record.rows]
    return len({what_was_trained(each) for each in trained}) > 1 and len({each.output for each in trained}) == 1


def _stopped_inside(record: RolloutRecord) -> bool:
    """True if a stop string that ended an answer is a part of the expected answer."""
    return any(stop in (record.expected or "") for stop in record.stopped_by)


def _results_of_tools(records: Iterable[RolloutRecord]) -> Iterator[str]:
    for record in records:
        yield from (str(each.get("content")) for each in record.messages if each.get("role") == "tool")


def _share(values: Iterable[bool]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0


def _words(text: str | None) -> str:
    """The text without case, punctuation and spaces at its ends."""
    return " ".join(re.findall(r"\w+", (text or "").casefold()))

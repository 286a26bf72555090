"""What expected answers, outputs and results of tools tell of an epoch's rollouts. Pure.

Each number is a sign of a mistake, so it is left out where it is zero.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from statistics import fmean

from nat.finetuning.rollout_statistics import by_example, what_was_trained
from nat.runs.rollouts import RolloutRecord
from nat.wire.rewards import equal

_ERROR = re.compile(r"\W*(\w*error|\w*exception|traceback|failed|failure)\b", re.IGNORECASE)
"""The beginning of a tool's result that tells of an error, in prose or as the first key of JSON."""


LEAST_RIGHT = 0.05
"""Share of the rollouts that must have the expected answer and the lowest score: fewer may lack what else is wanted."""
_Test = Callable[[Sequence[RolloutRecord], float], bool]
"""Of the rollouts of an example, and the highest score of all."""


def answer_metrics(records: Sequence[RolloutRecord]) -> dict[str, float]:
    """The metrics above zero."""
    scored = [record for own in by_example(records) for record in own]
    right = [record for record in scored if record.expected and _words(record.output) == _words(record.expected)]
    if sum(_is_lowest(record, scored) for record in right) < LEAST_RIGHT * len(scored):
        right = []
    found = {
        "reward/right_lowest": fmean(_is_lowest(record, scored) for record in right) if right else 0.0,
        "reward/right_unlike": fmean(record.output != record.expected for record in right) if right else 0.0,
        "rollout/answer_shown": _share_of_examples(records, _solved_as_shown),
        "rollout/output_alone": _share_of_examples(records, _output_does_not_depend),
        "rollout/tool_errors": _share_of_tool_errors(scored),
    }
    return {name: value for name, value in found.items() if value}


def _is_lowest(record: RolloutRecord, scored: Sequence[RolloutRecord]) -> bool:
    """True if no score is lower, and it is no score that all have but 0."""
    rewards = [each.reward for each in scored if each.reward is not None]
    low, high = min(rewards), max(rewards)
    return equal([record.reward or 0.0, low]) and (not equal([low, high]) or equal([low, 0.0]))


def _share_of_examples(records: Sequence[RolloutRecord], test: _Test) -> float:
    groups = by_example(records)
    top = max((record.reward or 0.0 for own in groups for record in own), default=0.0)
    return fmean(test(own, top) for own in groups) if groups else 0.0


def _solved_as_shown(own: Sequence[RolloutRecord], top: float) -> bool:
    """True if the prompt has the expected answer, and every rollout the highest score."""
    wanted = _words(own[0].expected)
    prompt = takewhile(lambda message: message.get("role") != "assistant", own[0].messages)
    shown = any(f" {wanted} " in f" {_words(str(message.get('content')))} " for message in prompt)
    return bool(wanted) and shown and all(equal([record.reward or 0.0, top]) for record in own)


def _output_does_not_depend(own: Sequence[RolloutRecord], _top: float) -> bool:
    """True if the model sampled different answers, and the workflow's output was the same."""
    trained = [record for record in own if record.rows]
    return len({what_was_trained(each) for each in trained}) > 1 and len({each.output for each in trained}) == 1


def _share_of_tool_errors(records: Iterable[RolloutRecord]) -> float:
    results = list(_results_of_tools(records))
    return fmean(_ERROR.match(text) is not None for text in results) if results else 0.0


def _results_of_tools(records: Iterable[RolloutRecord]) -> Iterator[str]:
    for record in records:
        yield from (str(each.get("content")) for each in record.messages if each.get("role") == "tool")


def _words(text: str | None) -> str:
    """The text without case, punctuation and spaces at its ends."""
    return " ".join(re.findall(r"\w+", (text or "").casefold()))

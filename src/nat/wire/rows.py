"""Merge the exact tokens of calls into training rows, by strict prefix matching.

A call whose prompt ids begin with all ids of a row continues that row; any other begins a new one, with the
same reward. Only sampled tokens are in a span and carry loss. Text is never tokenised again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nat.wire.training import Span, TrainingRow


@dataclass(frozen=True)
class CallTokens:
    """The tokens of one call: P prompt ids, C sampled ids and their C logprobs."""

    model: str
    """Calls to different models are never in one row."""
    prompt: Sequence[int]
    sampled: Sequence[int]
    logprobs: Sequence[float]
    value: float | None = None
    """What the answer is compared by; None for the reward of its rollout."""
    temperature: float = 1.0
    """Of the distribution that the logprobs are of."""
    policy_version: str | None = None
    """The weights that sampled the answer; None if it does not name them."""


@dataclass
class _OpenRow:
    model: str
    token_ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def continued_by(self, call: CallTokens) -> bool:
        size = len(self.token_ids)
        if call.model != self.model or list(call.prompt[size - 1 : size]) != self.token_ids[-1:]:
            return False  # the last token rules out most rows without comparing all of them
        head = call.prompt[:size]
        return (head if isinstance(head, list) else list(head)) == self.token_ids

    def add(self, call: CallTokens) -> Span | None:
        start = len(call.prompt)
        self.token_ids += [*call.prompt[len(self.token_ids) :], *call.sampled]
        if not call.sampled:
            return None
        span = Span(
            start=start,
            stop=start + len(call.sampled),
            logprobs=list(call.logprobs),
            temperature=call.temperature,
            policy_version=call.policy_version,
            value=call.value,
        )
        self.spans.append(span)
        return span


class OpenRows:
    """The rows of one rollout while calls are added; they are numbered in the order in which they began."""

    def __init__(self) -> None:
        self._rows: list[_OpenRow] = []

    def continued_by(self, call: CallTokens) -> int | None:
        """The longest row that the call continues; None if there is none."""
        found = [number for number, row in enumerate(self._rows) if row.continued_by(call)]
        return max(found, key=lambda number: len(self._rows[number].token_ids), default=None)

    def put(self, call: CallTokens, number: int | None) -> tuple[int, Span | None]:
        """Add a call to the row of that number, or to a new row.

        Returns the row's number, and the answer's span, which the finished row has; None for an answer without tokens.
        """
        if number is None:
            number = len(self._rows)
            self._rows.append(_OpenRow(model=call.model))
        return number, self._rows[number].add(call)

    def finished(self) -> list[TrainingRow]:
        """The rows in which something was sampled, in the order in which they began."""
        return [TrainingRow(token_ids=row.token_ids, spans=row.spans) for row in self._rows if row.spans]


def merge(calls: Iterable[CallTokens]) -> list[TrainingRow]:
    """As few rows as the tokens allow, in the order in which they began."""
    rows = OpenRows()
    for call in calls:
        rows.put(call, rows.continued_by(call))
    return rows.finished()

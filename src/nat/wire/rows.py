"""Merge the exact tokens of calls into training rows, by strict prefix matching.

A call whose prompt ids begin with all ids of a row continues that row; any other begins a new one, with the
same reward. Only sampled tokens carry a logprob and loss. Text is never tokenised again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nat.wire.training import AnswerReturn, SampledAt, SampledBy, TrainingRow


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


@dataclass(frozen=True)
class MergedRow:
    """A finished row, and the model that sampled in it."""

    model: str
    row: TrainingRow


@dataclass
class _OpenRow:
    model: str
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    returns: list[AnswerReturn] = field(default_factory=list)
    temperatures: list[SampledAt] = field(default_factory=list)
    versions: list[SampledBy] = field(default_factory=list)

    def continued_by(self, call: CallTokens) -> bool:
        size = len(self.token_ids)
        if call.model != self.model or list(call.prompt[size - 1 : size]) != self.token_ids[-1:]:
            return False  # the last token rules out most rows without comparing all of them
        head = call.prompt[:size]
        return (head if isinstance(head, list) else list(head)) == self.token_ids

    def add(self, call: CallTokens) -> None:
        context = call.prompt[len(self.token_ids) :]
        self.token_ids += [*context, *call.sampled]
        self.logprobs += [*(None for _ in context), *call.logprobs]
        if call.value is not None and call.sampled:
            self.returns.append(AnswerReturn(num_tokens=len(call.sampled), value=call.value))
        if call.sampled:
            self._sampled_at(call.temperature, len(call.sampled))
            self._sampled_by(call.policy_version, len(call.sampled))

    def finished(self) -> TrainingRow:
        tempered = any(entry.temperature != 1 for entry in self.temperatures)
        return TrainingRow(
            token_ids=self.token_ids,
            logprobs=self.logprobs,
            returns=self.returns or None,
            temperatures=self.temperatures if tempered else None,
            policy_versions=self.versions if any(entry.policy_version for entry in self.versions) else None,
        )

    def _sampled_at(self, temperature: float, tokens: int) -> None:
        """One entry for all answers in a row that have the same temperature."""
        if self.temperatures and self.temperatures[-1].temperature == temperature:
            tokens += self.temperatures.pop().num_tokens
        self.temperatures.append(SampledAt(num_tokens=tokens, temperature=temperature))

    def _sampled_by(self, version: str | None, tokens: int) -> None:
        """One entry for all answers in a row that the same weights sampled."""
        if self.versions and self.versions[-1].policy_version == version:
            tokens += self.versions.pop().num_tokens
        self.versions.append(SampledBy(num_tokens=tokens, policy_version=version))


class OpenRows:
    """The rows of one rollout while calls are added; they are numbered in the order in which they began."""

    def __init__(self) -> None:
        self._rows: list[_OpenRow] = []

    def continued_by(self, call: CallTokens) -> int | None:
        """The longest row that the call continues; None if there is none."""
        found = [number for number, row in enumerate(self._rows) if row.continued_by(call)]
        return max(found, key=lambda number: len(self._rows[number].token_ids), default=None)

    def add(self, call: CallTokens) -> int:
        """Continue the longest row that the call continues, or begin a new one; returns its number."""
        return self.put(call, self.continued_by(call))

    def put(self, call: CallTokens, number: int | None) -> int:
        """Add a call to the row of that number, or to a new row; returns its number."""
        if number is None:
            number = len(self._rows)
            self._rows.append(_OpenRow(model=call.model))
        self._rows[number].add(call)
        return number

    def finished(self) -> list[MergedRow]:
        """The rows in which something was sampled, in the order in which they began."""
        sampled = (row for row in self._rows if any(logprob is not None for logprob in row.logprobs))
        return [MergedRow(row.model, row.finished()) for row in sampled]


def merge(calls: Iterable[CallTokens]) -> list[TrainingRow]:
    """As few rows as the tokens allow, in the order in which they began."""
    rows = OpenRows()
    for call in calls:
        rows.add(call)
    return [merged.row for merged in rows.finished()]

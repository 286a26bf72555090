"""Exact tokens of LLM calls → training rows, by strict prefix merging.

A call whose prompt ids begin with all ids of a row continues that row; any other begins a new one, with the
same reward. Only sampled tokens carry a logprob, and with it loss. Text is never tokenised again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nat.data_models.finetuning import EpisodeItem, Trajectory, TrajectoryCollection
from nat.data_models.llm_call import LLMCall
from nat.errors import NoTrajectories
from nat.finetuning.trajectories.calls import token_logprobs
from nat.wire.training import TrainingGroup, TrainingRollout, TrainingRow


@dataclass(frozen=True)
class CallTokens:
    """What one call adds: P prompt ids, C sampled ids with their C logprobs."""

    model: str
    prompt: Sequence[int]
    sampled: Sequence[int]
    logprobs: Sequence[float]


@dataclass
class _OpenRow:
    model: str
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Length of the row after each of its calls."""

    def continued_by(self, call: CallTokens, *, at: int) -> bool:
        return call.model == self.model and list(call.prompt[:at]) == self.token_ids[:at]

    def add(self, call: CallTokens) -> None:
        context = call.prompt[len(self.token_ids) :]
        self.token_ids += [*context, *call.sampled]
        self.logprobs += [*(None for _ in context), *call.logprobs]
        self.ends.append(len(self.token_ids))


@dataclass(frozen=True)
class Rows:
    """The rows of one rollout."""

    rows: tuple[TrainingRow, ...]
    broken_prefixes: int
    """Calls that continue an earlier one by their messages, but not by their tokens."""


def tokens_of_call(call: LLMCall) -> CallTokens | None:
    """None if the call cannot be trained on id by id."""
    return _tokens(call.llm_name or call.model, call.prompt_token_ids, call.token_ids, call.logprobs)


def merge(calls: Sequence[CallTokens]) -> list[TrainingRow]:
    """As few rows as the tokens allow, in the order in which they began."""
    open_rows: list[_OpenRow] = []
    for call in calls:
        _row_for(call, open_rows).add(call)
    return _finished(open_rows)


def rows_of_calls(calls: Sequence[LLMCall]) -> Rows:
    """Rows of those calls that have exact tokens, and how often a conversation's tokens did not go on."""
    open_rows: list[_OpenRow] = []
    broken = 0
    for index, call in enumerate(calls):
        tokens = tokens_of_call(call)
        if tokens is None:
            continue
        exact = any(row.continued_by(tokens, at=end) for row in open_rows for end in row.ends)
        broken += not exact and any(_answers_follow(call, earlier) for earlier in calls[:index])
        _row_for(tokens, open_rows).add(tokens)
    return Rows(rows=tuple(_finished(open_rows)), broken_prefixes=broken)


def training_groups(collection: TrajectoryCollection, *, model: str | None = None) -> list[TrainingGroup]:
    """What an exact backend trains on: the trajectories that have token ids, grouped as they are.

    With `model` (an LLM's key in the YAML) only what that model sampled.

    Raises:
        NoTrajectories: no trajectory has exact tokens.

    """
    groups = [
        TrainingGroup(id=_group_id(trajectories, number), rollouts=rollouts)
        for number, trajectories in enumerate(collection.trajectories)
        if (rollouts := [rollout for t in trajectories if (rollout := _rollout(t, model)) is not None])
    ]
    if not groups:
        count = sum(map(len, collection.trajectories))
        raise NoTrajectories(
            f"none of {count} trajectories has the token ids of its answers with one logprob each"
            + (f", sampled by '{model}'" if model else ""),
            hint="train an LLM whose server answers `return_token_ids` and `logprobs` (ours and vLLM do)",
        )
    return groups


def _rollout(trajectory: Trajectory, model: str | None) -> TrainingRollout | None:
    items = [item for item in trajectory.episode if isinstance(item, EpisodeItem)]
    calls = [tokens for item in items if (tokens := _tokens_of_item(item)) is not None]
    rows = merge([call for call in calls if model in (None, call.model)])
    if not rows:
        return None
    truncated = any((item.metadata or {}).get("finish_reason") == "length" for item in items)
    return TrainingRollout(reward=trajectory.reward, rows=rows, truncated=truncated)


def _tokens_of_item(item: EpisodeItem) -> CallTokens | None:
    data = item.metadata or {}
    return _tokens(
        str(data.get("model")), data.get("prompt_token_ids"), data.get("token_ids"), token_logprobs(item.logprobs)
    )


def _tokens(
    model: str,
    prompt: Sequence[int] | None,
    sampled: Sequence[int] | None,
    logprobs: Sequence[float] | None,
) -> CallTokens | None:
    if not prompt or sampled is None or logprobs is None or len(sampled) != len(logprobs):
        return None
    return CallTokens(model=model, prompt=prompt, sampled=sampled, logprobs=logprobs)


def _row_for(call: CallTokens, open_rows: list[_OpenRow]) -> _OpenRow:
    """The longest row that the call continues, else a new one."""
    continued = [row for row in open_rows if row.continued_by(call, at=len(row.token_ids))]
    if continued:
        return max(continued, key=lambda row: len(row.token_ids))
    row = _OpenRow(model=call.model)
    open_rows.append(row)
    return row


def _finished(open_rows: Sequence[_OpenRow]) -> list[TrainingRow]:
    rows = [TrainingRow(token_ids=row.token_ids, logprobs=row.logprobs) for row in open_rows]
    return [row for row in rows if row.num_sampled]


def _answers_follow(call: LLMCall, earlier: LLMCall) -> bool:
    """True if the call repeats the earlier one's messages and has an answer where the earlier one got its own."""
    asked = len(earlier.messages)
    if len(call.messages) <= asked or call.messages[asked].get("role") != "assistant":
        return False
    return all(mine is theirs or mine == theirs for mine, theirs in zip(call.messages, earlier.messages, strict=False))


def _group_id(trajectories: Iterable[Trajectory], number: int) -> str:
    named = [str(t.metadata["id"]) for t in trajectories if t.metadata and "id" in t.metadata]
    return named[0] if named else str(number)

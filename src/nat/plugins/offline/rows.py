"""Rows of a training file as trajectories; the columns are those of TRL's dataset formats. Pure.

| columns | what it is |
|---|---|
| `messages` | a demonstration; every answer of the assistant in it is learned from |
| `prompt`, `completion` | a demonstration; the answers in the completion are learned from |
| `prompt`, `completion`, `label` | an answer that is desirable (true) or not |
| `prompt`, `completion`, `reward` | one of several answers to the same prompt |
| `prompt`, `chosen`, `rejected` | a pair; without `prompt`, the messages with which both begin are the prompt |

Prompts and completions are texts or lists of chat messages; `tools` are the tools that the model could call. A table
has one type for each column, so it fills calls and tools with the keys of the others: keys that are null are left out.
A null that a call has to have is kept in arguments that are JSON text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from nat.data_models.finetuning import DPOItem, EpisodeItem, EpisodeItemRole, OpenAIMessage, Trajectory
from nat.data_models.score import score_problem
from nat.errors import findings_of
from nat.finetuning.preferences.trajectories import dpo_items
from nat.finetuning.trajectories.rows import TextRollout, TextTrajectory
from nat.wire.json import parse_json
from nat.wire.training import Conversation

Row = Mapping[str, Any]
Message = dict[str, Any]


def trajectory_of(row: Row, example: str) -> Trajectory:
    """The row as a trajectory.

    Raises:
        ValueError: its columns are none of the formats, or their values are of the wrong type.

    """
    make = _format(row)
    if make is None:
        known = "; ".join(", ".join(columns) for columns in _FORMATS)
        raise ValueError(f"the columns {', '.join(sorted(row)) or 'of an empty row'} are none of the formats: {known}")
    try:
        return make(row, example)
    except ValidationError as error:
        raise ValueError("; ".join(map(str, findings_of(error)))) from error


def example_of(row: Row, number: int) -> str:
    """The id of the row's example: several answers with rewards share one, that of their prompt."""
    return json.dumps(row["prompt"], sort_keys=True, default=str) if _format(row) is _rewarded else str(number)


def kind_of(trajectory: Trajectory) -> str:
    """What a file with such rows is for."""
    if dpo_items(trajectory):
        return "pairs"
    if trajectory.is_preference:
        return "labels"
    return "rewards" if "reward" in (trajectory.metadata or {}) else "demonstrations"


def _demonstration(row: Row, example: str) -> Trajectory:
    messages = _messages(row["messages"], "messages", "user")
    answers = [at for at, message in enumerate(messages) if message.get("role") == "assistant" and at > 0]
    if not answers:
        raise ValueError("messages: none is an answer of the assistant")
    return _text(messages, answers, row, example)


def _labelled(row: Row, example: str) -> Trajectory:
    label = row["label"]
    if not isinstance(label, int | float) or label not in {True, False}:
        raise ValueError(f"label: {label!r} where true or false was expected")
    return _text(*_completed(row, "completion"), row, example, reward=float(label), desirable=bool(label))


def _rewarded(row: Row, example: str) -> Trajectory:
    if problem := score_problem(row["reward"], "reward"):
        raise ValueError(problem)
    reward = float(row["reward"])
    return _text(*_completed(row, "completion"), row, example, reward=reward, given={"reward": reward})


def _pair(row: Row, example: str) -> Trajectory:
    if row.get("prompt") is None:
        sides = [_messages(row[name], name, "assistant") for name in ("chosen", "rejected")]
        shared = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*sides, strict=False))))
        row = {**row, "prompt": sides[0][:shared], "chosen": sides[0][shared:], "rejected": sides[1][shared:]}
    (chosen, chosen_answers), (rejected, rejected_answers) = (_completed(row, name) for name in ("chosen", "rejected"))
    if chosen == rejected:
        raise ValueError("chosen and rejected are equal, so there is nothing to prefer")
    prompt = chosen[: chosen_answers[0]]
    item = DPOItem(
        prompt=[OpenAIMessage(role=str(m.get("role")), content=_plain(m)) for m in prompt],
        chosen_response=_plain(chosen[chosen_answers[0]]),
        rejected_response=_plain(rejected[rejected_answers[0]]),
    )
    texts = (
        TextRollout(1.0, Conversation(messages=chosen, tools=_tools(row), answers=chosen_answers)),
        TextRollout(0.0, Conversation(messages=rejected, tools=_tools(row), answers=rejected_answers)),
    )
    return TextTrajectory(episode=[item], reward=1.0, metadata={"id": example}, texts=texts)


_FORMATS: dict[tuple[str, ...], Callable[[Row, str], Trajectory]] = {
    ("chosen", "rejected"): _pair,
    ("prompt", "completion", "label"): _labelled,
    ("prompt", "completion", "reward"): _rewarded,
    ("prompt", "completion"): lambda row, example: _text(*_completed(row, "completion"), row, example),
    ("messages",): _demonstration,
}
"""The first one of which a row has all columns."""


def _format(row: Row) -> Callable[[Row, str], Trajectory] | None:
    return next(
        (make for columns, make in _FORMATS.items() if all(row.get(name) is not None for name in columns)), None
    )


def _completed(row: Row, name: str) -> tuple[list[Message], list[int]]:
    """Prompt and completion as one conversation, and the places of the completion's answers."""
    prompt = _messages(row["prompt"], "prompt", "user")
    completion = _messages(row[name], name, "assistant")
    answers = [len(prompt) + at for at, message in enumerate(completion) if message.get("role") == "assistant"]
    if not prompt or not answers:
        raise ValueError(f"{name}: no message is an answer of the assistant" if prompt else "prompt: it is empty")
    return [*prompt, *completion], answers


def _messages(value: Any, name: str, role: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, Sequence) and all(isinstance(message, dict) for message in value):
        return [_without_nulls(message) for message in value]
    raise ValueError(f"{name}: a {type(value).__name__} where a text or a list of messages was expected")


def _tools(row: Row) -> list[dict[str, Any]] | None:
    tools = row.get("tools")
    if isinstance(tools, str):  # TRL writes them as JSON, since a table has one type for each column
        return list(parse_json(tools)) or None
    return [_without_nulls(tool) for tool in tools] if tools else None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _plain(message: Message) -> str:
    """The message's text; calls of tools as JSON."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = message.get("tool_calls")
    return f"{text}\n{json.dumps(calls, ensure_ascii=False)}".strip() if calls else text


def _text(
    messages: list[Message],
    answers: list[int],
    row: Row,
    example: str,
    *,
    reward: float = 1.0,
    desirable: bool | None = None,
    given: Mapping[str, float] = MappingProxyType({}),
) -> TextTrajectory:
    return TextTrajectory(
        episode=[_item(message) for message in messages],
        reward=reward,
        metadata={"id": example, **given},
        texts=(TextRollout(reward, Conversation(messages=messages, tools=_tools(row), answers=answers), desirable),),
    )


def _item(message: Message) -> EpisodeItem:
    role = str(message.get("role"))
    known = EpisodeItemRole(role) if role in set(EpisodeItemRole) else EpisodeItemRole.OTHER
    if known is EpisodeItemRole.ASSISTANT:
        return EpisodeItem(role=known, content=_plain(message), logprobs={}, metadata={"sampled": False})
    return EpisodeItem(role=known, content=_plain(message))

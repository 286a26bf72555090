"""A rollout as a conversation: its turns, what was trained of them, and the outcome in words. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nat.reports.rollouts import trained_tokens
from nat.reports.text import one_line
from nat.runs.records import Phase
from nat.runs.rollouts import Beginning, ConversationRecord, RolloutRecord

_CELL = 60


class PartKind(StrEnum):
    """What a part of a turn is."""

    TEXT = "text"
    THINKING = "thinking"
    REFUSAL = "refusal"
    CALL = "call"


@dataclass(frozen=True)
class ShownPart:
    """A text of a turn, as the model or the agent wrote it."""

    kind: PartKind
    label: str
    """Names the field or the called tool; empty for the content."""
    text: str


@dataclass(frozen=True)
class ShownTurn:
    """One message."""

    role: str
    about: str
    """The name and the call that the message answers."""
    note: str
    """What was sampled or trained of it; empty for what the model did not sample."""
    parts: Sequence[ShownPart]


@dataclass(frozen=True)
class ShownConversation:
    """One conversation of a rollout, without what it shares with an earlier one."""

    title: str
    """Its number and why it began; empty if it is the only one."""
    turns: Sequence[ShownTurn]


def conversations(record: RolloutRecord, phase: Phase) -> list[ShownConversation]:
    """The rollout's conversations, in order."""
    verb = "trained" if trained_tokens(record, phase) else "sampled"
    found = []
    for number, (conversation, messages) in enumerate(record.threads(), 1):
        several = len(record.conversations) > 1
        title = f"conversation {number} of {len(record.conversations)}{_beginning(conversation)}" if several else ""
        spans = {answer.message: record.span_of(answer) for answer in conversation.answers}
        notes = {place: f"{verb}{'' if own is None else f', {own.size} tokens'}" for place, own in spans.items()}
        turns = [
            _turn(message, notes.get(place, ""))
            for place, message in enumerate(messages)
            if place >= conversation.shared or place in notes
        ]
        found.append(ShownConversation(title, turns))
    return found


def outcome_text(record: RolloutRecord, phase: Phase) -> str:
    """The reward, and what was trained or why nothing was."""
    reward = f"reward {number_text(record.reward)}" if record.reward is not None else "no reward"
    if record.left_out is not None:
        return (
            f"{reward}; left out of training: {record.left_out}"
            if phase is Phase.TRAIN
            else f"{reward}: {record.left_out}"
        )
    if phase is Phase.VALIDATION:
        return f"{reward}; held out, so not trained on"
    rows = "1 row" if len(record.rows) == 1 else f"{len(record.rows)} rows"
    return f"{reward}; trained on {trained_tokens(record, phase)} sampled tokens in {rows}"


def reasoning_text(record: RolloutRecord) -> str | None:
    """The evaluator's explanation as text."""
    reasoning = record.reasoning
    return (
        reasoning
        if reasoning is None or isinstance(reasoning, str)
        else json.dumps(reasoning, ensure_ascii=False, indent=2)
    )


def number_text(value: float | None) -> str:
    """A reward; empty if there is none."""
    return "" if value is None else f"{value:.3f}"


def _beginning(conversation: ConversationRecord) -> str:
    if conversation.began is Beginning.FIRST:
        return ""
    shared = ""
    if conversation.parent is not None and conversation.shared:
        shared = f"; its first {conversation.shared} messages are those of conversation {conversation.parent + 1}"
    return f" ({conversation.began.value}{shared})"


def _turn(message: dict[str, Any], note: str) -> ShownTurn:
    role = one_line(str(message.get("role", "?")), _CELL)
    about = " ".join(one_line(str(message[key]), _CELL) for key in ("name", "tool_call_id") if message.get(key))
    return ShownTurn(role, about, note, list(_parts(message)))


def _parts(message: dict[str, Any]) -> Iterator[ShownPart]:
    kinds = {
        "reasoning_content": PartKind.THINKING,
        "reasoning": PartKind.THINKING,
        "content": PartKind.TEXT,
        "refusal": PartKind.REFUSAL,
    }
    for key, kind in kinds.items():
        if message.get(key):
            yield ShownPart(kind, "" if key == "content" else f"({key})", _content(message[key]))
    calls = message.get("tool_calls") or ()
    for call in calls if isinstance(calls, list | tuple) else [calls]:
        yield _tool_call(call)


def _tool_call(call: Any) -> ShownPart:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ShownPart(PartKind.CALL, "", json.dumps(call, ensure_ascii=False, default=str))
    name, arguments = one_line(str(function.get("name")), _CELL), function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ShownPart(PartKind.CALL, f"calls {name} {one_line(str(call.get('id') or ''), _CELL)}".rstrip(), text)


def _content(content: Any) -> str:
    """The text of a message; parts that are not text (an image) are named."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_text_of, content))
    return json.dumps(content, ensure_ascii=False, default=str)


def _text_of(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    return f"({kind})"


def remarks(record: RolloutRecord) -> list[str]:
    """What was left out of training, besides the whole rollout, and what else a reader should know of it."""
    found = [] if record.rows else ["the journal has no tokens of this rollout"]
    for function, options in record.untrainable_calls.items():
        found += [f"not trained: {_count(n, 'call')} of {function}, sampled with {how}" for how, n in options.items()]
    for function, options in record.untempered_calls.items():
        found += [f"at another temperature: {_count(n, 'call')} of {function}, {how}" for how, n in options.items()]
    found += [f"{_count(n, 'tool call')} could not be used: {cause}" for cause, n in record.lost_calls.items()]
    found += [f"{_count(n, 'call')} began a new row: {cause}" for cause, n in record.broken_by.items()]
    found += [f"{_count(record.num_failed_calls, 'call')} got no answer"] if record.num_failed_calls else []
    return found + (["an answer reached its token limit"] if record.truncated else [])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

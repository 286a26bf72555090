"""A rollout as a person reads it: its conversations turn by turn, what was trained of them, and the outcome. Pure."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nat.reports.text import indented, one_line, printable
from nat.runs.records import Phase
from nat.runs.rollouts import Beginning, Conversation, RolloutRecord
from nat.wire.training import TrainingRow

RowText = Callable[[TrainingRow], str]

_CELL = 60
_BAR = "│ "
_MESSAGE_CHARS = 4000
_KINDS = {"reasoning_content": "thinking", "reasoning": "thinking", "content": "text", "refusal": "refusal"}
"""The fields of a message with text, in the order in which they are shown."""


class ShownPart(NamedTuple):
    """A text of a turn, as the model or the agent wrote it."""

    kind: str
    """text, thinking, refusal or call."""
    label: str
    """Names the field or the called tool; empty for the content."""
    text: str


class ShownTurn(NamedTuple):
    """One message."""

    role: str
    about: str
    """The name and the call that the message answers."""
    note: str
    """What was sampled or trained of it; empty for what the model did not sample."""
    parts: Sequence[ShownPart]


class ShownConversation(NamedTuple):
    """One conversation of a rollout, without what it shares with an earlier one."""

    title: str
    """Its number and why it began; empty if it is the only one."""
    turns: Sequence[ShownTurn]


def trained_tokens(record: RolloutRecord, phase: Phase) -> int:
    """Sampled tokens of the rollout that were submitted for training."""
    if phase is not Phase.TRAIN or record.left_out is not None:
        return 0
    return sum(row.num_sampled for row in record.rows)


def conversations(record: RolloutRecord, phase: Phase) -> list[ShownConversation]:
    """The rollout's conversations, in order."""
    verb, count = "trained" if trained_tokens(record, phase) else "sampled", len(record.conversations)
    found = []
    for number, conversation in enumerate(record.conversations, 1):
        title = f"conversation {number} of {count}{_beginning(conversation)}" if count > 1 else ""
        spans = {answer.message: record.span_of(answer) for answer in conversation.answers}
        notes = {place: f"{verb}{'' if own is None else f', {own.size} tokens'}" for place, own in spans.items()}
        turns = [
            _turn(message, notes.get(place, ""))
            for place, message in enumerate(conversation.messages)
            if place >= conversation.shared or place in notes
        ]
        found.append(ShownConversation(title, turns))
    return found


def _beginning(conversation: Conversation) -> str:
    if conversation.began is Beginning.FIRST:
        return ""
    shared = ""
    if conversation.parent is not None and conversation.shared:
        shared = f"; its first {conversation.shared} messages are those of conversation {conversation.parent + 1}"
    return f" ({conversation.began.value}{shared})"


def _turn(message: dict[str, Any], note: str) -> ShownTurn:
    role = one_line(str(message.get("role", "?")), _CELL)
    about = " ".join(one_line(str(message[key]), _CELL) for key in ("name", "tool_call_id") if message.get(key))
    parts = [
        ShownPart(kind, "" if key == "content" else f"({key})", _content(message[key]))
        for key, kind in _KINDS.items()
        if message.get(key)
    ]
    calls = message.get("tool_calls") or ()
    return ShownTurn(
        role, about, note, [*parts, *map(_tool_call, calls if isinstance(calls, list | tuple) else [calls])]
    )


def _tool_call(call: Any) -> ShownPart:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return ShownPart("call", "", json.dumps(call, ensure_ascii=False, default=str))
    name, arguments = one_line(str(function.get("name")), _CELL), function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ShownPart("call", f"calls {name} {one_line(str(call.get('id') or ''), _CELL)}".rstrip(), text)


def _content(content: Any) -> str:
    """The text of a message; parts that are not text (an image) are named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False, default=str)
    parts = [part if isinstance(part, dict) else {"type": type(part).__name__} for part in content]
    return "\n".join(part["text"] if isinstance(part.get("text"), str) else f"({part.get('type')})" for part in parts)


def outcome_text(record: RolloutRecord, phase: Phase) -> str:
    """The reward, and what was trained or why nothing was."""
    reward = "no reward" if record.reward is None else f"reward {record.reward:.3f}"
    if record.left_out is not None:
        return (
            f"{reward}; left out of training: {record.left_out}"
            if phase is Phase.TRAIN
            else f"{reward}: {record.left_out}"
        )
    if phase is Phase.VALIDATION:
        return f"{reward}; held out, so not trained on"
    return f"{reward}; trained on {trained_tokens(record, phase)} sampled tokens in {_count(len(record.rows), 'row')}"


def reasoning_text(record: RolloutRecord) -> str | None:
    """The evaluator's explanation as text."""
    reasoning = record.reasoning
    if reasoning is None or isinstance(reasoning, str):
        return reasoning
    return json.dumps(reasoning, ensure_ascii=False, indent=2)


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


def rollout_text(record: RolloutRecord, phase: Phase, row_text: RowText | None = None) -> str:
    """One rollout for a terminal; every line that the agent or the model wrote stands behind a bar."""
    who = f"example {one_line(record.example_id, _CELL)}, generation {record.generation}"
    lines = [printable(f"── {who}: {outcome_text(record, phase)}")]
    if record.error is not None:
        lines += ["error", *indented(record.error, _BAR)]
    for conversation in conversations(record, phase):
        lines += [conversation.title] if conversation.title else []
        for turn in conversation.turns:
            lines.append(printable(f"{turn.role} {turn.about}".rstrip()) + (f"  [{turn.note}]" if turn.note else ""))
            for part in turn.parts:
                lines += [printable(f"  {part.label}")] if part.label else []
                lines += _block(part.text)
    for title, text in (
        ("output of the workflow", record.output),
        ("the evaluator's reasoning", reasoning_text(record)),
    ):
        lines += [] if text is None else [title, *_block(text)]
    if row_text is not None:
        what = "trained" if trained_tokens(record, phase) else "sampled, not trained"
        for number, row in enumerate(record.rows, 1):
            lines.append(f"row {number}: {len(row.token_ids)} tokens, {row.num_sampled} of them {what}, in ⟦⟧")
            lines += indented(row_text(row), _BAR)
    return "\n".join(lines)


def _block(text: str) -> list[str]:
    more = len(text) - _MESSAGE_CHARS
    lines = indented(text[:_MESSAGE_CHARS], _BAR)
    return [*lines, f"… {more:,} more characters; --json has all"] if more > 0 else lines

"""Rollouts as a person reads a conversation: messages, tool calls, the score, and what was trained."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from nat.reports.rollouts import RolloutChoice, chosen, trained_tokens
from nat.reports.text import indented, one_line, printable, table
from nat.runs.records import Phase, after_epoch, epoch_number
from nat.runs.rollouts import Beginning, ConversationRecord, RolloutRecord
from nat.wire.training import Span, TrainingRow

_MESSAGE_CHARS = 4000
_CELL = 60
_BAR = "│ "

RowText = Callable[[TrainingRow], str]


@dataclass(frozen=True)
class PlayedRollouts:
    """The rollouts of one epoch or validation of a run."""

    run_id: str
    phase: Phase
    epoch: int
    records: Sequence[RolloutRecord]

    @property
    def title(self) -> str:
        where = (
            f"epoch {epoch_number(self.epoch)}" if self.phase is Phase.TRAIN else f"held-out {after_epoch(self.epoch)}"
        )
        rewards = [record.reward for record in self.records if record.reward is not None]
        missing = len(self.records) - len(rewards)
        mean = f", mean reward {sum(rewards) / len(rewards):.3f}" if rewards else ""
        failed = f", {missing} without a reward (--failed {missing} shows them)" if missing else ""
        return f"run {self.run_id}, {where}: {len(self.records)} rollouts{mean}{failed}"


def rollouts_page(played: PlayedRollouts, choice: RolloutChoice, row_text: RowText | None = None) -> str:
    """The chosen rollouts in full; if none is chosen, a line for each rollout of the epoch."""
    if not choice.any:
        return printable("\n\n".join([played.title, _index(played)]))
    pages = [rollout_text(record, played.phase, row_text) for record in chosen(played.records, choice)]
    return "\n\n\n".join([printable(played.title), *(pages or ["No rollout is of this kind."])])


def rollouts_record(
    played: PlayedRollouts, choice: RolloutChoice, row_text: RowText | None = None
) -> dict[str, JsonValue]:
    """The chosen rollouts, or all; with `row_text` also their rows, as tokens and as text."""
    records = chosen(played.records, choice) if choice.any else played.records
    return {
        "run_id": played.run_id,
        "phase": played.phase.value,
        "epoch": played.epoch,
        "rollouts": [_record(record, row_text) for record in records],
    }


def _record(record: RolloutRecord, row_text: RowText | None) -> JsonValue:
    fields: dict[str, JsonValue] = json.loads(record.model_dump_json(exclude=set() if row_text else {"rows"}))
    if row_text is not None:
        fields["row_texts"] = [row_text(row) for row in record.rows]
    return fields


def _index(played: PlayedRollouts) -> str:
    header = ("example", "generation", "reward", "calls", "trained tokens", "left out, or output")
    rows = [
        (
            one_line(record.example_id, _CELL),
            str(record.generation),
            _number(record.reward),
            "" if record.num_calls is None else str(record.num_calls),
            str(trained_tokens(record, played.phase)),
            one_line(str(record.left_out) if record.left_out else record.output or "", _CELL),
        )
        for record in played.records
    ]
    return table(header, rows, left=len(header))


def rollout_text(record: RolloutRecord, phase: Phase, row_text: RowText | None = None) -> str:
    """One rollout; every line that the agent or the model wrote stands behind a bar."""
    who = f"example {one_line(record.example_id, _CELL)}, generation {record.generation}"
    lines = [printable(f"── {who}: {_outcome(record, phase)}")]
    if record.error is not None:
        lines += ["error", *indented(record.error, _BAR)]
    verb = "trained" if trained_tokens(record, phase) else "sampled"
    for number, (conversation, messages) in enumerate(record.threads(), 1):
        if len(record.conversations) > 1:
            lines.append(f"conversation {number} of {len(record.conversations)}{_beginning(conversation)}")
        notes = {answer.message: _note(verb, record.span_of(answer)) for answer in conversation.answers}
        lines += _conversation(messages, conversation.shared, notes)
    if record.output is not None:
        lines += ["output of the workflow", *_block(record.output)]
    if record.reasoning is not None:
        reasoning = record.reasoning
        text = reasoning if isinstance(reasoning, str) else json.dumps(reasoning, ensure_ascii=False, indent=2)
        lines += ["the evaluator's reasoning", *_block(text)]
    if row_text is not None:
        what = "trained" if trained_tokens(record, phase) else "sampled, not trained"
        for number, row in enumerate(record.rows, 1):
            lines.append(f"row {number}: {len(row.token_ids)} tokens, {row.num_sampled} of them {what}, in ⟦⟧")
            lines += indented(row_text(row), _BAR)
    return "\n".join(lines)


def _outcome(record: RolloutRecord, phase: Phase) -> str:
    reward = f"reward {_number(record.reward)}" if record.reward is not None else "no reward"
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


def _note(verb: str, span: Span | None) -> str:
    return f"  [{verb}{'' if span is None else f', {span.size} tokens'}]"


def _conversation(messages: Sequence[dict[str, Any]], shared: int, notes: Mapping[int, str]) -> list[str]:
    """Its messages, without those that it shares with an earlier conversation, if they were not sampled in it."""
    return [
        line
        for place, message in enumerate(messages)
        if place >= shared or place in notes
        for line in _message(message, notes.get(place, ""))
    ]


def _beginning(conversation: ConversationRecord) -> str:
    if conversation.began is Beginning.FIRST:
        return ""
    shared = ""
    if conversation.parent is not None and conversation.shared:
        shared = f"; its first {conversation.shared} messages are those of conversation {conversation.parent + 1}"
    return f" ({conversation.began.value}{shared})"


def _message(message: dict[str, Any], note: str) -> list[str]:
    role = one_line(str(message.get("role", "?")), _CELL)
    about = " ".join(one_line(str(message[key]), _CELL) for key in ("name", "tool_call_id") if message.get(key))
    lines = [printable(f"{role} {about}".rstrip()) + note]
    for key in ("reasoning_content", "reasoning", "content", "refusal"):
        if message.get(key):
            lines += [f"  ({key})"] if key != "content" else []
            lines += _block(_content(message[key]))
    calls = message.get("tool_calls") or ()
    for call in calls if isinstance(calls, list | tuple) else [calls]:
        lines += _tool_call(call)
    return lines


def _tool_call(call: Any) -> list[str]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return _block(json.dumps(call, ensure_ascii=False, default=str))
    name, arguments = one_line(str(function.get("name")), _CELL), function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return [printable(f"  calls {name} {one_line(str(call.get('id') or ''), _CELL)}".rstrip()), *_block(text)]


def _content(content: Any) -> str:
    """The text of a message; parts that are not text (an image) are named."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return json.dumps(content, ensure_ascii=False, default=str)


def _part(part: Any) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    return f"({kind})"


def _block(text: str) -> list[str]:
    more = len(text) - _MESSAGE_CHARS
    lines = indented(text[:_MESSAGE_CHARS], _BAR)
    return [*lines, f"… {more:,} more characters; --json has all"] if more > 0 else lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"

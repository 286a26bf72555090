"""Rollouts as a person reads a conversation: messages, tool calls, the score, and what was trained."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from nat.reports.conversation import ShownTurn, conversations, number_text, outcome_text, reasoning_text
from nat.reports.rollouts import played_name, trained_tokens
from nat.reports.text import indented, one_line, printable, table
from nat.runs.records import Phase
from nat.runs.rollouts import Outcome, RolloutRecord
from nat.wire.training import TrainingRow

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
    outcomes: Sequence[Outcome]
    """Of all of them."""
    records: Iterable[RolloutRecord]
    """Those to show, one at a time."""

    @property
    def title(self) -> str:
        rewards = [each.reward for each in self.outcomes if each.reward is not None]
        missing = len(self.outcomes) - len(rewards)
        mean = f", mean reward {sum(rewards) / len(rewards):.3f}" if rewards else ""
        failed = f", {missing} without a reward (--failed {missing} shows them)" if missing else ""
        return f"run {self.run_id}, {played_name(self.phase, self.epoch)}: {len(self.outcomes)} rollouts{mean}{failed}"


def rollouts_page(played: PlayedRollouts, *, whole: bool, row_text: RowText | None = None) -> str:
    """The rollouts in full, or a line for each of them."""
    if not whole:
        return printable("\n\n".join([played.title, _index(played)]))
    pages = [rollout_text(record, played.phase, row_text) for record in played.records]
    return "\n\n\n".join([printable(played.title), *(pages or ["No rollout is of this kind."])])


def rollouts_record(played: PlayedRollouts, row_text: RowText | None = None) -> dict[str, JsonValue]:
    """The rollouts in full; with `row_text` also their rows, as tokens and as text."""
    return {
        "run_id": played.run_id,
        "phase": played.phase.value,
        "epoch": played.epoch,
        "rollouts": [_record(record, row_text) for record in played.records],
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
            number_text(record.reward),
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
    lines = [printable(f"── {who}: {outcome_text(record, phase)}")]
    if record.error is not None:
        lines += ["error", *indented(record.error, _BAR)]
    for conversation in conversations(record, phase):
        lines += [conversation.title] if conversation.title else []
        lines += [line for turn in conversation.turns for line in _turn(turn)]
    if record.output is not None:
        lines += ["output of the workflow", *_block(record.output)]
    if (reasoning := reasoning_text(record)) is not None:
        lines += ["the evaluator's reasoning", *_block(reasoning)]
    if row_text is not None:
        what = "trained" if trained_tokens(record, phase) else "sampled, not trained"
        for number, row in enumerate(record.rows, 1):
            lines.append(f"row {number}: {len(row.token_ids)} tokens, {row.num_sampled} of them {what}, in ⟦⟧")
            lines += indented(row_text(row), _BAR)
    return "\n".join(lines)


def _turn(turn: ShownTurn) -> list[str]:
    lines = [printable(f"{turn.role} {turn.about}".rstrip()) + (f"  [{turn.note}]" if turn.note else "")]
    for part in turn.parts:
        lines += [printable(f"  {part.label}")] if part.label else []
        lines += _block(part.text)
    return lines


def _block(text: str) -> list[str]:
    more = len(text) - _MESSAGE_CHARS
    lines = indented(text[:_MESSAGE_CHARS], _BAR)
    return [*lines, f"… {more:,} more characters; --json has all"] if more > 0 else lines

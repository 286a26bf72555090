"""The rollouts of one example as conversations in the shape of OpenAI and of chat templates. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from nat.preferences.parting import Marked, marked_messages
from nat.runs.rollouts import RolloutRecord
from nat.wire.json import parse_json
from nat.wire.training import Span, TrainingRow

Message = dict[str, Any]

_KEYS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
"""What chat templates read of a message."""


class LeftOut(NamedTuple):
    """Something that is not in the file, and why."""

    what: str
    """rollout, conversation, group or pair"""
    why: str


@dataclass(frozen=True)
class TextConversation:
    """One conversation of a rollout, all of text."""

    messages: list[Message]
    sampled: list[int]
    """Places of the answers that the model sampled in this rollout; the last message is one."""
    tools: str | None
    """The tools that its last request offered, as JSON."""
    row: TrainingRow | None
    """Its tokens; None if the run has none, or if its answers are in several rows."""
    spans: list[Span]
    """The tokens of each answer in the row; empty without it."""


@dataclass(frozen=True)
class Generation:
    """One scored rollout of an example."""

    number: int
    reward: float
    conversations: list[TextConversation]

    @cached_property
    def marked(self) -> list[Marked]:
        """What two generations are compared by."""
        return [marked_messages(each.messages, each.sampled, each.tools) for each in self.conversations]


@dataclass(frozen=True)
class Group:
    """The generations of one example in one epoch."""

    phase: str
    epoch: int
    """As in the run's files: the number of updates before it."""
    example_id: str
    generations: list[Generation]

    @property
    def rewards(self) -> list[float]:
        return [generation.reward for generation in self.generations]


def group_of(
    phase: str, epoch: int, example_id: str, records: Iterable[RolloutRecord]
) -> tuple[Group, Counter[LeftOut]]:
    """The rollouts that have a reward and could be trained on, and what is left out."""
    left_out: Counter[LeftOut] = Counter()
    generations = []
    for record in records:
        if record.left_out is not None and not record.left_out.by_choice:
            left_out[LeftOut("rollout", record.left_out)] += 1
        elif record.reward is None or not isfinite(record.reward):
            left_out[LeftOut("rollout", "it has no reward")] += 1
        else:
            whole = _conversations(record)
            if missing := len(record.conversations) - len(whole):
                left_out[LeftOut("conversation", "it has messages that are not text")] += missing
            generations.append(Generation(record.generation, record.reward, whole))
    return Group(phase, epoch, example_id, generations), left_out


def _conversations(record: RolloutRecord) -> list[TextConversation]:
    """The conversations of a rollout that are all text."""
    found = []
    for conversation in record.conversations:
        texts = [plain for message in conversation.messages if (plain := _plain(message)) is not None]
        if len(texts) < len(conversation.messages):
            continue
        tools = json.dumps(conversation.tools, ensure_ascii=False) if conversation.tools else None
        answers = conversation.answers
        spans = [span for answer in answers if (span := record.span_of(answer)) is not None]
        rows = {answer.row for answer in answers}
        whole = len(spans) == len(answers) and len(rows) == 1
        row = record.rows[rows.pop() or 0] if whole else None
        found.append(
            TextConversation(texts, [answer.message for answer in answers], tools, row, spans if whole else [])
        )
    return found


def _plain(message: Message) -> Message | None:
    """The message with a text as content and parsed arguments of tool calls; None if it has an image or the like."""
    content = message.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
            return None
        content = "".join(part["text"] for part in content)
    kept = {key: message[key] for key in _KEYS if message.get(key)} | {"content": content}
    if "tool_calls" in kept:
        kept["tool_calls"] = [_tool_call(call) for call in kept["tool_calls"]]
    return {key: kept[key] for key in _KEYS if key in kept}


def _tool_call(call: dict[str, Any]) -> dict[str, Any]:
    """With the arguments as an object, as chat templates want them; as text if they are not JSON."""
    function = call.get("function") or {}
    arguments = parsed = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = parse_json(arguments)
            json.dumps(parsed, allow_nan=False)
        except ValueError:  # a model may sample anything
            parsed = arguments
    return {
        "id": call.get("id"),
        "type": call.get("type") or "function",
        "function": {"name": function.get("name"), "arguments": parsed},
    }


def masked(spans: Sequence[Span], begin: int, end: int) -> tuple[list[int], list[float]]:
    """1 for each sampled token from `begin` to `end` and 0 for others, and the log probabilities, 0 for others."""
    known = {span.start + place: x for span in spans for place, x in enumerate(span.logprobs or ())}
    return [int(at in known) for at in range(begin, end)], [known.get(at, 0.0) for at in range(begin, end)]

"""Thread the LLM calls of one rollout into conversations, by their messages alone.

A call continues a conversation if its messages begin with all of it, the last answer included. What does
not continue one (a sub-agent, a retry, a rewritten history) begins its own, so nothing is merged that was
not one conversation, and nothing is thrown away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nat.finetuning.trajectories.calls import SeenCall

Message = dict[str, Any]


@dataclass
class Conversation:
    """Messages in order; `sampled` maps the position of a message to the call that sampled it."""

    messages: list[Message] = field(default_factory=list)
    sampled: dict[int, SeenCall] = field(default_factory=dict)

    def continued_by(self, messages: Sequence[Message]) -> bool:
        return len(messages) >= len(self.messages) and all(map(same_message, self.messages, messages))

    def add(self, seen: SeenCall) -> None:
        self.messages += seen.call.messages[len(self.messages) :]
        self.sampled[len(self.messages)] = seen
        self.messages.append(seen.call.message)


def conversations(calls: Sequence[SeenCall]) -> list[Conversation]:
    """The conversations of a rollout, in the order in which they began."""
    threads: list[Conversation] = []
    for seen in calls:
        continued = [thread for thread in threads if thread.continued_by(seen.call.messages)]
        if continued:
            thread = max(continued, key=lambda thread: len(thread.messages))
        else:
            thread = Conversation()
            threads.append(thread)
        thread.add(seen)
    return threads


def same_message(one: Message, other: Message) -> bool:
    """Equal in all that a chat template may show; clients add and drop empty fields when they send an answer back."""
    return one is other or _essence(one) == _essence(other)


def text_of(message: Message) -> str:
    """The message's text; parts that are not text (an image) are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _essence(message: Message) -> tuple[Any, ...]:
    calls = [
        (call.get("id"), function.get("name"), function.get("arguments"))
        for call in message.get("tool_calls") or []
        for function in [call.get("function") or {}]
    ]
    return message.get("role"), message.get("content") or "", calls, message.get("tool_call_id"), message.get("name")

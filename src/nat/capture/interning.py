"""Interning of a rollout's messages: equal ones are kept once.

Each call of a conversation repeats the whole history, so a rollout of T turns sends T²/2 messages, of which T are new.
The records of its calls share the objects of equal messages, tools and ids, which must not be changed.
"""

from typing import Any

_REMEMBERED_PROMPTS = 4
"""Conversations that grow side by side in one rollout (sub-agents); more of them only cost memory."""


class Interner:
    """Returns for each value the first equal one; the order and the repetitions of messages stay."""

    def __init__(self) -> None:
        self._messages: dict[tuple[object, object], list[dict[str, Any]]] = {}
        self._tools: list[list[dict[str, Any]]] = []
        self._sequences: list[list[int]] = []

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        key = (message.get("role"), content if isinstance(content, str) else None)
        known = self._messages.setdefault(key, [])
        for earlier in known:
            if earlier == message:
                return earlier
        known.append(message)
        return message

    def messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [self.message(message) for message in messages]

    def tools(self, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        if tools is None:
            return None
        for earlier in self._tools:
            if earlier == tools:
                return earlier
        self._tools.append(tools)
        return tools

    def prompt_ids(self, prompt: list[int]) -> list[int]:
        """The prompt's ids; a prefix that an earlier call ended with shares its int objects (8 bytes an id, not 40)."""
        for earlier in reversed(self._sequences):
            size = len(earlier)
            if prompt[:size] == earlier:
                return earlier + prompt[size:]
        return prompt

    def sampled(self, prompt: list[int], completion: list[int]) -> None:
        """Remember prompt and completion, since the next prompt of the conversation begins with them."""
        self._sequences.append(prompt + completion)
        del self._sequences[:-_REMEMBERED_PROMPTS]

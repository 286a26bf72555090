"""What a message says, whichever way a client wrote it down."""

import json
from typing import Any

from nat.wire.text import parsed

Message = dict[str, Any]
Essence = tuple[Any, ...]


def text_of(message: Message) -> str:
    """The message's text; parts that are not text (an image) are left out."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def essence(message: Message) -> Essence:
    """Equal for messages that say the same in all that a chat template may show; hashable.

    Clients add and drop empty fields when they send an answer back; frameworks write the arguments of a tool call, and
    a text that came as one string, down again in their own way.
    """
    calls = tuple(
        (call.get("id"), function.get("name"), _arguments(function.get("arguments")))
        for call in message.get("tool_calls") or ()
        for function in [call.get("function") or {}]
    )
    return message.get("role"), _content(message), calls, message.get("tool_call_id"), message.get("name")


def _content(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not content:
        return ""
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
        return text_of(message)
    return _canonical(content)


def _arguments(given: Any) -> str:
    if not isinstance(given, str):
        return _canonical(given)
    try:
        return _canonical(parsed(given))
    except ValueError:  # what a model says need not be JSON
        return given


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)

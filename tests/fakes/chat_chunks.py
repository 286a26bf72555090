"""A chat completion as servers stream it, split at chosen places."""

from collections.abc import Callable, Iterator
from typing import Any

Cut = Callable[[str], list[str]]


def uncut(text: str) -> list[str]:
    """The text in one piece, or nothing for an empty text."""
    return [text] if text else []


def completion(
    message: dict[str, Any], *, reason: str | None = None, usage: dict[str, Any] | None = None, **choice: Any
) -> dict[str, Any]:
    """The unstreamed answer with this message."""
    reason = reason or ("tool_calls" if message.get("tool_calls") else "stop")
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "student",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, **choice}],
        "usage": usage or {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
    }


def chunks(whole: dict[str, Any], cut: Cut = uncut) -> Iterator[dict[str, Any]]:
    """The same answer in chunks: the role, the pieces of each text, the finish reason, the usage."""
    head = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = whole["choices"][0]
    ending = {key: value for key, value in choice.items() if key not in ("index", "message")}
    for delta in ({"role": "assistant", "content": ""}, *_deltas(choice["message"], cut)):
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, **ending}]}
    yield {**head, "choices": [], "usage": whole["usage"]}


def _deltas(message: dict[str, Any], cut: Cut) -> Iterator[dict[str, Any]]:
    for key in ("reasoning_content", "reasoning", "content"):
        for piece in cut(message.get(key) or ""):
            yield {key: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        name = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": name}]}
        for piece in cut(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}

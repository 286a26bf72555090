"""From messages and tools as they travel in the OpenAI API to what a chat template expects.

Requests and the conversations of a training batch go through here, so that both render to the same tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nat.backend.tokenizer import ChatNotRendered
from nat.wire.text import parsed


def template_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Content as one text, the arguments of earlier calls as objects, and nothing that is null but the content.

    Raises:
        ChatNotRendered: the content has a part that is no text.

    """
    plain = {key: value for key, value in message.items() if value is not None or key == "content"}
    if isinstance(plain.get("content"), Sequence) and not isinstance(plain["content"], str):
        plain["content"] = "".join(_text(part) for part in plain["content"])
    if plain.get("role") == "developer":
        plain["role"] = "system"  # OpenAI's newer name for it, which open models do not know
    if "tool_calls" in plain:
        plain["tool_calls"] = [_template_call(call) for call in plain["tool_calls"]]
    return plain


def template_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a bare function definition, and unwrap one that was wrapped twice."""
    inner = tool.get("function")
    if isinstance(inner, Mapping) and inner.get("type") == "function" and isinstance(inner.get("function"), Mapping):
        return template_tool(inner)
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}


def _text(part: Any) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ChatNotRendered(f"a message's content has a part of type {kind!r}; only text can be rendered")


def _template_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return dict(call)
    return {**call, "function": {**function, "arguments": _as_object(function.get("arguments", ""))}}


def _as_object(arguments: Any) -> Any:
    """Templates write arguments with `tojson`; a string would be quoted a second time."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = parsed(arguments)
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments

"""Read fields of requests and write parts of chats, for the dialects that translate. Pure."""

from collections.abc import Iterable
from typing import Any

from nat.gateway.dialects import Body, Untranslatable
from nat.secrets import redact
from nat.wire.sampling import read_count


def listed(value: Any, place: str) -> list[Body]:
    """The value, which must be a list of objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Untranslatable(f"{place}: wanted a list of objects, got {_excerpt(value)}")
    return value


def object_at(value: Any, place: str) -> Body:
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise Untranslatable(f"{place}: wanted an object, got {_excerpt(value)}")
    return value


def text_at(value: Any, place: str) -> str:
    """The value, which must be a text."""
    if not isinstance(value, str):
        raise Untranslatable(f"{place}: wanted a text, got {_excerpt(value)}")
    return value


def count_at(value: Any, place: str) -> int:
    """The value, which must be a whole number from 1 on."""
    count = read_count(value)
    if count is None:
        raise Untranslatable(f"{place}: wanted a whole number from 1 on, got {_excerpt(value)}")
    return count


def texts_at(value: Any, place: str) -> list[str]:
    """The value, which must be a list of texts; null is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Untranslatable(f"{place}: wanted a list of texts, got {_excerpt(value)}")
    return value


def unknown_type(kind: Any, known: Iterable[str], place: str, remedy: str) -> Untranslatable:
    """The error for a type that a chat does not have."""
    return Untranslatable(f"{place}: {kind!r} has no equivalent in a chat, known are {', '.join(known)}; {remedy}")


def joined(parts: list[Body]) -> str | list[Body]:
    """Texts joined by an empty line, since not every chat template takes parts; with other parts, the list."""
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def text_part(text: str) -> Body:
    """A text among parts."""
    return {"type": "text", "text": text}


def image_part(url: str, detail: str | None = None) -> Body:
    """An image among parts, by its address or as data."""
    return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}


def function_tool(name: str, description: str | None, parameters: Any, *, strict: bool | None = None) -> Body:
    """A tool of a chat; fields without a value are left out."""
    fields = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {key: value for key, value in fields.items() if value is not None}}


def named_choice(name: str) -> Body:
    """The tool choice that demands this tool."""
    return {"type": "function", "function": {"name": name}}


def schema_format(name: str, schema: Any, **others: Any) -> Body:
    """The response format for JSON of this schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **others}}


def _excerpt(value: Any) -> str:
    text = redact(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."  # an excerpt of one line

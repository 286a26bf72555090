"""What the requests of both dialects are read with. Pure."""

from collections.abc import Iterable
from typing import Any

from nat.gateway.dialects import Body, Untranslatable
from nat.secrets import redact
from nat.wire.sampling import read_count


def listed(value: Any, place: str) -> list[Body]:
    """A list of objects, as the field must hold."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise Untranslatable(f"{place}: wanted a list of objects, got {_shown(value)}")
    return value


def object_at(value: Any, place: str) -> Body:
    """An object, as the field must hold."""
    if not isinstance(value, dict):
        raise Untranslatable(f"{place}: wanted an object, got {_shown(value)}")
    return value


def text_at(value: Any, place: str) -> str:
    """A text, as the field must hold."""
    if not isinstance(value, str):
        raise Untranslatable(f"{place}: wanted a text, got {_shown(value)}")
    return value


def count_at(value: Any, place: str) -> int:
    """A whole number from 1 on, as the field must hold."""
    count = read_count(value)
    if count is None:
        raise Untranslatable(f"{place}: wanted a whole number from 1 on, got {_shown(value)}")
    return count


def texts_at(value: Any, place: str) -> list[str]:
    """A list of texts, as the field must hold; null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Untranslatable(f"{place}: wanted a list of texts, got {_shown(value)}")
    return value


def chosen(kind: Any, known: Iterable[str], place: str, remedy: str) -> Untranslatable:
    """The error that a thing of this type is none that a chat has."""
    return Untranslatable(f"{place}: {kind!r} cannot be said in a chat, known are {', '.join(known)}; {remedy}")


def joined(parts: list[Body]) -> str | list[Body]:
    """Texts as one text, an empty line between them, since not every chat template takes parts; else the parts."""
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
    """A tool as a chat has it; what was not said is left out."""
    said = {"name": name, "description": description, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {key: value for key, value in said.items() if value is not None}}


def named_choice(name: str) -> Body:
    """The tool choice that demands this tool."""
    return {"type": "function", "function": {"name": name}}


def schema_format(name: str, schema: Any, **others: Any) -> Body:
    """The response format that demands JSON of a schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **others}}


def _shown(value: Any) -> str:
    text = redact(repr(value))
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004  # a line's worth of it

"""A span as exporters get it, and the text of its attributes: plain, redacted, and valid UTF-8. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic_core import to_json

from nat.secrets import redact
from nat.telemetry import names
from nat.wire.json import without_surrogates

Value = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, Value]
_LATEST_S = 9e9


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one time within a span."""

    name: str
    at: int
    """Nanoseconds since 1970."""
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """One finished operation."""

    trace_id: int
    """128 bits; equal for all spans of a rollout."""
    span_id: int
    """64 bits."""
    parent_id: int | None
    """None for the rollout itself."""
    name: str
    started: int
    """Nanoseconds since 1970; likewise `ended`."""
    ended: int
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """Why it failed; None if it did not."""
    remote: bool = False
    """True for a request to a server."""

    def encodable(self) -> "Span":
        """The same with lone surrogates as escapes, whatever names the workflow and its evaluators have."""
        events = tuple(replace(event, attributes=_encodable(event.attributes)) for event in self.events)
        name = without_surrogates(self.name)
        return replace(self, name=name, attributes=_encodable(self.attributes), events=events)

    def without_content(self) -> "Span":
        """The same without what the model and the workflow were given and have answered."""
        events = tuple(replace(event, attributes=_without_content(event.attributes)) for event in self.events)
        error = None if self.error is None else "failed"
        return replace(self, attributes=_without_content(self.attributes), events=events, error=error)


class Exporter(Protocol):
    """Where spans go; it is used by one thread, and may block it."""

    def send(self, spans: list[Span]) -> int:
        """Send the spans, and return how many of them were refused; any exception means all of them."""
        ...

    def close(self) -> None: ...


def _encodable(attributes: Mapping[str, Value]) -> Attributes:
    return {
        without_surrogates(name): without_surrogates(value) if isinstance(value, str) else value
        for name, value in attributes.items()
    }


def _without_content(attributes: Mapping[str, Value]) -> Attributes:
    return {name: value for name, value in attributes.items() if not names.is_content(name)}


def nanoseconds(seconds: float) -> int:
    """A time since 1970 as spans have it; a time that their 64 bits cannot hold is the nearest one, NaN 1970."""
    return int(min(max(0.0, seconds), _LATEST_S) * 1e9)


def span_id(trace_id: int, step: str) -> int:
    """The span of a step; any text may be a step's UUID."""
    known = f"{trace_id:x} {step}".encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(known, digest_size=8).digest()) or 1


def text(value: Any) -> str:
    """A text unchanged, anything else as JSON; without secrets."""
    return redact(without_surrogates(value)) if isinstance(value, str) else json(value)


def json(value: Any) -> str:
    """The value as JSON, without secrets; what JSON does not know becomes text."""
    try:
        known = to_json(value, fallback=repr, inf_nan_mode="constants")
    except (ValueError, TypeError):  # lone surrogates, bytes that are no text, or keys that are no text
        known = to_json(without_surrogates(value), fallback=repr, inf_nan_mode="constants", bytes_mode="base64")
    return redact(known.decode())


def content(name: str, type_name: str, value: Any) -> Attributes:
    """OpenInference's pair of a value and its type; empty for no value."""
    if value is None:
        return {}
    return {name: text(value), type_name: "text/plain" if isinstance(value, str) else "application/json"}

"""Server-sent events: written, and read piece by piece. Pure."""

from typing import Any

from pydantic_core import from_json

from nat.secrets import excerpt

DATA = b"data:"
_DONE = b"[DONE]"


def event(data: bytes, name: str = "") -> bytes:
    """One event on the wire; `data` is JSON without line breaks."""
    named = b"event: " + name.encode() + b"\n" if name else b""
    return named + DATA + b" " + data + b"\n\n"


DONE = event(_DONE)
"""The event that ends OpenAI's streams."""


def event_data(line: bytes) -> bytes | None:
    """The data of a line without its line break; None if the line has none."""
    return line[len(DATA) :].strip() if line.startswith(DATA) else None


class EventReader:
    """Joins pieces of a stream to events, each a JSON object."""

    def __init__(self) -> None:
        self._rest = b""
        self.done = False
        """The server has sent `[DONE]`; nothing follows."""

    def feed(self, piece: bytes) -> list[dict[str, Any]]:
        """The events that are complete now; ValueError if one is not a JSON object."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = []
        for line in lines:
            data = event_data(line)
            if not data or self.done:
                continue
            if data == _DONE:
                self.done = True
                continue
            value = from_json(data)
            if not isinstance(value, dict):
                raise ValueError(f"an event is not an object: {excerpt(repr(data), 200)}")
            events.append(value)
        return events

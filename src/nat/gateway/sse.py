"""Server-sent events as chat completions are streamed, read piece by piece and written again. Pure."""

from typing import Any

from pydantic_core import from_json, to_json

from nat.secrets import excerpt

DONE = b"data: [DONE]\n\n"
_DATA = b"data:"


class EventReader:
    """Joins what comes in arbitrary pieces to events."""

    def __init__(self) -> None:
        self._rest = b""
        self.done = False
        """The server has said that nothing follows."""

    def feed(self, piece: bytes) -> list[dict[str, Any]]:
        """The events that are complete now; ValueError if one is no JSON object."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = []
        for line in lines:
            data = line[len(_DATA) :].strip() if line.startswith(_DATA) else b""
            if not data or self.done:
                continue
            if data == b"[DONE]":
                self.done = True
                continue
            event = from_json(data)
            if not isinstance(event, dict):
                raise ValueError(f"an event is no object: {excerpt(repr(data), 200)}")  # noqa: TRY004 - what came is wrong, not a type of ours
            events.append(event)
        return events


def event(chunk: dict[str, Any]) -> bytes:
    """A chunk on the wire."""
    return _DATA + b" " + to_json(chunk) + b"\n\n"

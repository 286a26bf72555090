"""Server-sent events that carry their name beside their data. Pure."""

from pydantic_core import to_json

from nat.gateway.dialects import Body


def named_event(name: str, data: Body) -> bytes:
    """One event on the wire, its name in its data too."""
    return b"event: " + name.encode() + b"\ndata: " + to_json({"type": name, **data}) + b"\n\n"

"""Server-sent events that carry their name beside their data. Pure."""

from pydantic_core import to_json

from nat.gateway.dialects import Body
from nat.http.sse import event


def named_event(name: str, data: Body) -> bytes:
    """One event on the wire, its name in its data too."""
    return event(to_json({"type": name, **data}), name)

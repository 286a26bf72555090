"""How many values a body may have: each takes time and memory when it is parsed, however few bytes it has."""

MOST_OBJECTS = 100_000
"""Objects and lists of a request to a model or a workflow: about half a second, in which nobody else is answered."""
MOST_VALUES = 2_000_000
"""Commas of such a request, those in its texts included; no context has as many token ids."""
MOST_IN_BATCH = 2**24
"""Values, objects and lists of a batch: about two seconds."""


def check_request(body: bytes | bytearray) -> None:
    """Refuse a request of more values than a conversation has, before it is parsed.

    Raises:
        ValueError: it has.

    """
    _check(_objects(body), MOST_OBJECTS, "brackets and braces that open")
    _check(body.count(b","), MOST_VALUES, "commas")


def check_batch(body: bytes) -> None:
    """The same for the training routes, whose bodies are hundreds of megabytes of tokens."""
    _check(_objects(body) + body.count(b","), MOST_IN_BATCH, "values")


def _objects(body: bytes | bytearray) -> int:
    return body.count(b"{") + body.count(b"[")


def _check(found: int, most: int, what: str) -> None:
    if found > most:
        raise ValueError(f"the body has {found} {what}; at most {most}")

"""How many objects and lists a body may have: each takes time and a hundred bytes, however few it has on the wire."""

MOST_OPENINGS = 100_000
"""Of a request to a model or a workflow: about half a second, in which nobody else is answered."""
BYTES_PER_OPENING = 16
"""Of a batch, in the mean over its body; ART's batches have twenty to forty."""


def check_request(body: bytes | bytearray) -> None:
    """Refuse a request of more objects and lists than a conversation has, before it is parsed.

    Raises:
        ValueError: it has.

    """
    _check(body, MOST_OPENINGS)


def check_batch(body: bytes) -> None:
    """The same for the training routes, whose bodies are hundreds of megabytes of tokens."""
    _check(body, max(MOST_OPENINGS, len(body) // BYTES_PER_OPENING))


def _check(body: bytes | bytearray, most: int) -> None:
    found = body.count(b"{") + body.count(b"[")
    if found > most:
        raise ValueError(f"the body has {found} brackets and braces that open; at most {most}")

"""How many objects and lists a body may have."""

import pytest

from nat.wire.json_bounds import BYTES_PER_OPENING, MOST_OPENINGS, check_batch, check_request


def test_a_request_has_as_many_as_a_conversation():
    """However large it is."""
    check_request(b"[{" * (MOST_OPENINGS // 2))
    for body in (b"[" * (MOST_OPENINGS + 1), b"{" * MOST_OPENINGS + b"[" + b" " * 10_000_000):
        with pytest.raises(ValueError, match=f"{MOST_OPENINGS + 1} brackets"):
            check_request(body)


def test_a_batch_has_more_of_them_if_it_is_larger():
    """Its tokens take space, too."""
    most = MOST_OPENINGS * 2
    padding = b" " * (most * BYTES_PER_OPENING - most)
    check_batch(b"{" * MOST_OPENINGS)
    check_batch(b"{" * most + padding)
    with pytest.raises(ValueError, match=f"at most {most}"):
        check_batch(b"{" * most + padding + b"[")

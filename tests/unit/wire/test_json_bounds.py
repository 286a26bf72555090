"""How many values a body may have."""

import pytest

from nat.wire.json_bounds import MOST_IN_BATCH, MOST_OBJECTS, MOST_VALUES, check_batch, check_request


def test_a_request_has_as_many_values_as_a_conversation():
    """However large it is."""
    check_request(b"[{" * (MOST_OBJECTS // 2) + b"," * MOST_VALUES + b" " * 10_000_000)
    for body in (b"[" * (MOST_OBJECTS + 1), b"{" * MOST_OBJECTS + b"[", b"," * (MOST_VALUES + 1)):
        with pytest.raises(ValueError, match="at most"):
            check_request(body)


def test_a_batch_has_as_many_as_its_tokens():
    """Millions of them; of whichever kind they are."""
    for kind in (b"{", b"[", b",", b"{},["):
        most = kind * (MOST_IN_BATCH // (len(kind) - kind.count(b"}")))
        check_batch(most)
        with pytest.raises(ValueError, match=f"at most {MOST_IN_BATCH}"):
            check_batch(most + b"[" + kind)

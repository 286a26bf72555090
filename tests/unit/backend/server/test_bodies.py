import gc

import pytest
from pydantic import TypeAdapter, ValidationError

from nat.backend.server.bodies import LARGE, parse

NUMBERS = TypeAdapter(list[int])


@pytest.mark.parametrize("size", [1, LARGE])
def test_a_body_is_checked_whatever_its_size(size):
    """A good one becomes a record, a bad one an error, and the garbage collector runs afterwards as before."""
    padding = b" " * size
    assert parse(NUMBERS, b"[1, 2]" + padding) == [1, 2]
    with pytest.raises(ValidationError):
        parse(NUMBERS, b"[1, true, {}]" + padding)
    assert gc.isenabled()


def test_collections_wait_until_a_large_body_is_read():
    """Hundreds of them would walk through the records that are there so far; one or two may catch up at the end."""
    seen: list[str] = []
    gc.callbacks.append(lambda phase, _: seen.append(phase))
    try:
        rows = parse(TypeAdapter(list[list[int]]), b"[" + b",".join([b"[1]"] * (LARGE // 3)) + b"]")
        during = list(seen)
    finally:
        gc.callbacks.pop()
    assert len(rows) == LARGE // 3
    assert during.count("start") <= 2

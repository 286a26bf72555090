import gc

import pytest
from pydantic import TypeAdapter, ValidationError

from nat.backend.server.bodies import LARGE, parse

NUMBERS = TypeAdapter(list[int])


@pytest.mark.parametrize("size", [1, LARGE])
def test_a_body_is_checked_whatever_its_size(size):
    """Valid bodies become records, others errors; garbage collection is enabled again afterwards."""
    padding = b" " * size
    assert parse(NUMBERS, b"[1, 2]" + padding) == [1, 2]
    with pytest.raises(ValidationError):
        parse(NUMBERS, b"[1, true, {}]" + padding)
    assert gc.isenabled()


def test_garbage_collection_waits_for_a_large_body():
    """Parsing a large body would start hundreds of collections; at most two run afterwards."""
    seen: list[str] = []
    gc.callbacks.append(lambda phase, _: seen.append(phase))
    try:
        rows = parse(TypeAdapter(list[list[int]]), b"[" + b",".join([b"[1]"] * (LARGE // 3)) + b"]")
        during = list(seen)
    finally:
        gc.callbacks.pop()
    assert len(rows) == LARGE // 3
    assert during.count("start") <= 2

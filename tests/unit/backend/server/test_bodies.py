import asyncio
import gc

import pytest
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from nat.backend.server.bodies import LARGE, event_stream, parse, read_batch
from nat.http.errors import ApiError

NUMBERS = TypeAdapter(list[int])


@pytest.mark.parametrize("size", [1, LARGE])
def test_a_body_is_checked_whatever_its_size(size):
    """Valid bodies become records, others errors; garbage collection is enabled again afterwards."""
    padding = b" " * size
    assert parse(NUMBERS, b"[1, 2]" + padding) == [1, 2]
    with pytest.raises(ValidationError):
        parse(NUMBERS, b"[1, true, {}]" + padding)
    assert gc.isenabled()


async def test_a_compressed_batch_is_refused():
    """As all other bodies are, before it is read."""
    http = Request({"type": "http", "headers": [(b"content-encoding", b"gzip")]})
    with pytest.raises(ApiError, match="Content-Encoding: gzip"):
        await read_batch(http, NUMBERS)


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


async def test_others_have_a_turn_between_the_events_of_a_stream():
    """Events that are all there, and a client that takes each at once, would hold the event loop until the end."""
    order = []

    async def events():
        for number in range(3):
            yield b"%d" % number

    async def other():
        for _ in range(3):
            order.append("other")
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    async for event in event_stream(events()).body_iterator:
        order += [event]
    await running
    assert order[:6] == [b"0", "other", b"1", "other", b"2", "other"]

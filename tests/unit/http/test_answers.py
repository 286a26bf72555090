"""Answers of servers that are not ours: bounded and uncompressed."""

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest

from nat.http.answers import body


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000


async def test_a_body_within_the_limit_is_read():
    """The limit counts bytes and is inclusive."""
    assert await body(httpx.Response(200, content=b"four"), 4) == b"four"


async def test_reading_stops_at_the_limit():
    """An endless body is not read further."""
    with pytest.raises(httpx.DecodingError, match="larger than 2500 bytes"):
        await body(httpx.Response(200, content=endless()), 2500)


async def test_a_compressed_body_is_refused():
    """Compressed bytes say nothing about the size; requests forbid them."""
    response = httpx.Response(200, content=gzip.compress(b"x" * 10**6), headers={"Content-Encoding": "gzip"})
    with pytest.raises(httpx.DecodingError, match=r"compressed \(gzip\)"):
        await body(response, 10**7)

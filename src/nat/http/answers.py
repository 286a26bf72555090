"""Read the answer of a server that is not ours: uncompressed, and not more than a limit."""

from collections.abc import AsyncIterator

import httpx

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Header of a request: some bytes of a compressed answer can become gigabytes."""


async def limited(response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """The body's chunks, at most `most` bytes in all.

    Raises:
        httpx.DecodingError: there are more, or they are compressed.

    """
    encoding, size = response.headers.get("Content-Encoding", "identity"), 0
    if encoding != "identity":
        raise httpx.DecodingError(f"the answer is compressed ({encoding}), which the request did not allow")
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > most:
            raise httpx.DecodingError(f"the answer is larger than {most} bytes")
        yield chunk


async def body(response: httpx.Response, most: int) -> bytes:
    """The whole body, of at most `most` bytes; raises as `limited` does."""
    return b"".join([chunk async for chunk in limited(response, most)])

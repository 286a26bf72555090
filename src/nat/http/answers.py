"""Bound what is read of a server's answer; for streams of httpx and of httpx2, which have the same classes."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, ClassVar

MAX_ANSWER_BYTES = 256 * 2**20
"""Of one answer, unless a client sets another bound: as many as a batch to train on may have."""

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Header of a request: some bytes of a compressed answer can become gigabytes."""

TEXT = "utf-8"
"""Of all answers, whatever they say: Python has codecs that decompress, such as zlib, and others that fail."""


class BoundedChunks:
    """The body of a response, as its stream; a subclass adds the library's base classes and its error."""

    error: ClassVar[type[Exception]]

    def __init__(self, response: Any, most: int) -> None:
        """An answer that is compressed, or has more than `most` bytes, is an error where it is read."""
        self._stream = response.stream
        self._encoding = response.headers.get("Content-Encoding", "identity")
        self._most = most
        self._seen = 0

    @property
    def elapsed(self) -> timedelta | None:
        """The response reads its duration here, if its library does not set it."""
        return getattr(self._stream, "elapsed", None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._stream)
        try:
            async for chunk in chunks:
                self._check(chunk)
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._check(chunk)
            yield chunk

    def close(self) -> None:
        self._stream.close()

    def _check(self, chunk: bytes) -> None:
        if self._encoding != "identity":
            raise self.error(f"the answer is compressed ({self._encoding}), which the request did not allow")
        self._seen += len(chunk)
        if self._seen > self._most:
            raise self.error(f"the answer is larger than {self._most} bytes")

"""Holds new requests back while the weights change, and waits for those that have begun. For one event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """Open at first."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._left = asyncio.Event()
        self._left.set()
        self._inside = 0

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        """Wait until the gate is open, then count as begun until the end of the block."""
        while not self._opened.is_set():  # it may be closed again before this one goes on
            await self._opened.wait()
        self._inside += 1
        self._left.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._left.set()

    async def close(self) -> None:
        """Hold new requests back; wait until those inside have left."""
        self._opened.clear()
        await self._left.wait()

    async def open(self) -> None:
        """Let all waiting requests in."""
        self._opened.set()

"""The keys of the rollouts that are open now."""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b

from nat.gateway.door import Door
from nat.wire.known_secrets import new_key


class Keyring:
    """One key for each open door. It is found by its digest, so no comparison tells how much of a guess was right."""

    def __init__(self) -> None:
        self._doors: dict[bytes, tuple[bytes, Door]] = {}

    @asynccontextmanager
    async def opened(self, door: Door) -> AsyncIterator[str]:
        """A new key for the door, until the block ends; calls under way end with it."""
        key = new_key()
        digest = _digest(key.encode())
        self._doors[digest] = (key.encode(), door)
        try:
            yield key
        finally:
            del self._doors[digest]
            await door.close()

    def door(self, key: bytes) -> Door | None:
        """What the key opens; None for a wrong key and for one whose rollout is over."""
        known, door = self._doors.get(_digest(key), (b"", None))
        return door if hmac.compare_digest(known, key) else None


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=32).digest()

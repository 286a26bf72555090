"""The keys of the rollouts that are open now."""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b

from nat.gateway.access import RolloutAccess
from nat.secrets import new_key


class Keyring:
    """One key for each open rollout, found by its digest, so that no comparison tells how much of a guess was right."""

    def __init__(self) -> None:
        self._accesses: dict[bytes, tuple[bytes, RolloutAccess]] = {}

    @asynccontextmanager
    async def opened(self, access: RolloutAccess) -> AsyncIterator[str]:
        """A new key for the rollout, until the block ends; calls under way end with it."""
        key = new_key()
        digest = _digest(key.encode())
        self._accesses[digest] = (key.encode(), access)
        try:
            yield key
        finally:
            del self._accesses[digest]
            await access.close()

    def find(self, key: bytes) -> RolloutAccess | None:
        """What the key opens; None for a wrong key and for one whose rollout is over."""
        known, access = self._accesses.get(_digest(key), (b"", None))
        return access if hmac.compare_digest(known, key) else None


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=32).digest()

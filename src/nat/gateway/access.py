"""Keys of the running rollouts, and the models that each key gives access to."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import copy_context
from hashlib import blake2b
from typing import Any

from nat.gateway.dialects import DialectMemory
from nat.gateway.retries import Answers
from nat.gateway.upstream import Upstream
from nat.http.guards import same_key
from nat.secrets import new_key


class RolloutAccess:
    """Access of one rollout's key to models; created in the rollout's context, to which its calls then belong."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        """`upstreams` by the LLM's key in the YAML; the first answers requests that name none of them."""
        self.memory = DialectMemory()
        self.answers = Answers()
        self.used = False
        """Whether a call has come with its key."""
        self.closed = False
        self._upstreams = upstreams
        self._context = copy_context()
        self._calls: set[asyncio.Task[None]] = set()

    def upstream(self, model: str | None) -> Upstream:
        """The upstream for this model; unknown names, such as an agent's default model, mean the first LLM."""
        return self._upstreams.get(model or "") or next(iter(self._upstreams.values()))

    @property
    def models(self) -> list[str]:
        """The YAML keys of its LLMs."""
        return list(self._upstreams)

    def start(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a call in the rollout's context; the end of the rollout cancels it."""
        task = asyncio.create_task(call, context=self._context.copy())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def close(self) -> None:
        """Cancel running calls and wait for their end, since their steps are part of the rollout."""
        self.closed = True
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class Keyring:
    """One key for each open rollout, found by its digest, so that a lookup's duration reveals nothing about it."""

    def __init__(self) -> None:
        self._accesses: dict[bytes, tuple[bytes, RolloutAccess]] = {}

    @asynccontextmanager
    async def opened(self, access: RolloutAccess) -> AsyncIterator[str]:
        """A new key for the rollout; the end of the block revokes it and ends the calls in progress."""
        key = new_key()
        digest = _digest(key.encode())
        self._accesses[digest] = (key.encode(), access)
        try:
            yield key
        finally:
            del self._accesses[digest]
            await access.close()

    def find(self, key: bytes) -> RolloutAccess | None:
        """The rollout of a key; None for a wrong key, and after its rollout has ended."""
        known, access = self._accesses.get(_digest(key), (b"", None))
        return access if same_key(key, known) else None


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=32).digest()

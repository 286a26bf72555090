"""Keys of the rollouts that run now, and what each gives access to: models whose calls become steps of that rollout."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from hashlib import blake2b
from typing import Any

from nat.gateway.dialects import Memory
from nat.gateway.retries import Answers
from nat.gateway.upstream import Upstream
from nat.http.guards import same_key
from nat.secrets import new_key


class RolloutAccess:
    """Open as long as its rollout runs; made inside of it, so that its calls belong to it."""

    def __init__(self, upstreams: Mapping[str, Upstream], context: Context | None = None) -> None:
        """`upstreams` by the LLM's key in the YAML; the first answers requests that name none of them."""
        self.memory = Memory()
        self.answers = Answers()
        self.bytes_spent = 0
        """Of requests and answers, which the rollout keeps."""
        self.closed = False
        self._upstreams = upstreams
        self._context = context or copy_context()
        self._calls: set[asyncio.Task[None]] = set()

    def upstream(self, model: object) -> Upstream:
        """The upstream of a request for this model: agents bring model names of their own, which mean nothing here."""
        if isinstance(model, str) and model in self._upstreams:
            return self._upstreams[model]
        return next(iter(self._upstreams.values()))

    @property
    def models(self) -> list[str]:
        """The keys in the YAML of the LLMs behind it."""
        return list(self._upstreams)

    def start(self, call: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a call inside of the rollout; it ends with the rollout at the latest."""
        task = asyncio.create_task(call, context=self._context.copy())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def close(self) -> None:
        """Cancel calls that still run, and wait for their end: their steps are part of the rollout."""
        self.closed = True
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


class Keyring:
    """One key for each open rollout, found by its digest, so that no lookup tells how much of a guess was right."""

    def __init__(self) -> None:
        self._accesses: dict[bytes, tuple[bytes, RolloutAccess]] = {}

    @asynccontextmanager
    async def opened(self, access: RolloutAccess) -> AsyncIterator[str]:
        """A new key for the rollout until the block ends, and with it the calls in progress."""
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

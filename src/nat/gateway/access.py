"""What the key of one rollout gives access to: models, whose calls become steps of that rollout."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any

from nat.gateway.dialects import Memory
from nat.gateway.retries import Answers
from nat.gateway.upstream import Upstream


class RolloutAccess:
    """Open as long as its rollout runs; made inside of it, so that its calls belong there."""

    def __init__(self, upstreams: Mapping[str, Upstream], context: Context | None = None) -> None:
        """`upstreams` by the LLM's key in the YAML; the first takes what names none of them."""
        self.memory: Memory = {}
        self.answers = Answers()
        self.bytes_spent = 0
        """Of requests and answers, which the rollout keeps."""
        self.closed = False
        self._upstreams = upstreams
        self._context = context or copy_context()
        self._calls: set[asyncio.Task[None]] = set()

    def upstream(self, model: object) -> Upstream:
        """Where a request goes that asks for this model: agents bring names of their own, which mean nothing here."""
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
        """End what still runs, and wait until it has ended: its steps are part of the rollout."""
        self.closed = True
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

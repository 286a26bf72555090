"""Open components once, on one exit stack: what a component asks for is opened before it and closed after it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from typing import Any

from nat.data_models.common import TypedBaseModel
from nat.errors import ANY_FAILURE, NatError, WorkflowError, describe_error

_opening: ContextVar[tuple[str, ...]] = ContextVar("nat_opening", default=())
"""The components that are being built around this call, outermost first."""


class Opener:
    """Built things by their path in the YAML, `llms.judge`."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._opened: dict[str, Any] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(self, path: str, build: Callable[[], Awaitable[Any]]) -> Any:
        """What stands at the path, built on the first call; a circle of components raises WorkflowError."""
        chain = _opening.get()
        if path in chain:
            circle = " → ".join((*chain[chain.index(path) :], path))
            raise WorkflowError(f"components need each other in a circle: {circle}")
        async with self._locks.setdefault(path, asyncio.Lock()):
            if path not in self._opened:
                token = _opening.set((*chain, path))
                try:
                    self._opened[path] = await build()
                finally:
                    _opening.reset(token)
        return self._opened[path]

    def opened(self, path: str) -> Any:
        """What stands at the path, None if it was not built."""
        return self._opened.get(path)

    async def enter(self, path: str, config: TypedBaseModel, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Enter a build function; its failure names the component."""
        try:
            return await self._stack.enter_async_context(manager)
        except NatError:
            raise
        except ANY_FAILURE as error:
            raise WorkflowError(
                f"{path} (_type: {config.static_type()}) could not be built: {describe_error(error)}"
            ) from error

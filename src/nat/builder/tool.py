"""A function of the workflow as the tool objects of all frameworks need it: name, schema, and a call by arguments."""

import asyncio
import threading
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from nat.builder.function import Function
from nat.builder.threads import run_in_thread
from nat.errors import WorkflowError

PATIENCE_S = 60.0
"""A loop that takes longer to begin a call is not busy but held up, and would be for ever."""


class ToolFunction:
    """Made where the builder runs (`get_tool`), whose event loop the function's own clients belong to."""

    def __init__(self, name: str, fn: Function, *, patience_s: float = PATIENCE_S) -> None:
        """`patience_s` is how long a call from a thread waits for the loop to come to it."""
        self.name = name
        self._fn = fn
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def description(self) -> str:
        """What the model is told about it; frameworks want a text, so a function without one gives its name."""
        return self._fn.description or self.name

    @property
    def schema(self) -> type[BaseModel]:
        """The arguments, as a model."""
        return self._fn.input_schema

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments, as a JSON schema."""
        return self._fn.input_schema.model_json_schema()

    async def call(self, arguments: dict[str, Any]) -> Any:
        """What the function returns; what it raises is for the framework to report to the model."""
        if asyncio.get_running_loop() is self._loop:
            return await self._invoke(arguments)
        return await run_in_thread(self.call_blocking, arguments)  # an agent that was given a loop of its own

    def call_blocking(self, arguments: dict[str, Any]) -> Any:
        """The same from a thread: the function runs on the builder's loop, in the rollout of the thread."""
        if threading.get_ident() == self._thread:
            raise self._loop_is_held()
        begun = threading.Event()

        async def invoke() -> Any:
            begun.set()
            return await self._invoke(arguments)

        future = asyncio.run_coroutine_threadsafe(invoke(), self._loop)
        if not begun.wait(self._patience_s):
            future.cancel()
            raise self._loop_is_held()
        return future.result()

    async def _invoke(self, arguments: dict[str, Any]) -> Any:
        return await self._fn.ainvoke(self._fn.from_arguments(arguments))

    def _loop_is_held(self) -> WorkflowError:
        return WorkflowError(
            f"the tool '{self.name}' cannot run: the agent that called it holds up the event loop that it runs on",
            hint="await the framework's async API, or make the workflow function a plain `def`: it runs in a thread",
        )


def as_text(result: Any) -> str:
    """What a tool returned as the text that a model reads: a text as it is, all else as JSON, nothing as nothing."""
    if result is None:
        return ""
    return result if isinstance(result, str) else to_json(result, fallback=str).decode()

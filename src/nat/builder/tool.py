"""A function of the workflow as a tool of a framework: name, JSON schema, and a call by arguments."""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from nat.builder.function import Function
from nat.builder.threads import run_in_thread
from nat.errors import WorkflowError


class ToolFunction:
    """A function that can be called from any thread or loop; it runs on the loop where `get_tool` was called."""

    def __init__(self, name: str, fn: Function, *, loop_timeout_s: float = 60.0) -> None:
        """A loop that takes longer than `loop_timeout_s` to begin a call from a thread is blocked."""
        self.name = name
        self.description = fn.description or name  # frameworks require a text
        self.schema = fn.input_schema
        self.parameters = fn.input_schema.model_json_schema()
        self._fn = fn
        self._patience_s = loop_timeout_s
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def call(self, arguments: dict[str, Any]) -> Any:
        """Call the function; the framework reports an exception to the model."""
        if asyncio.get_running_loop() is self._loop:
            return await self._fn.ainvoke(self._fn.from_arguments(arguments))
        return await run_in_thread(self.call_blocking, arguments)  # the agent runs on another loop

    def call_blocking(self, arguments: dict[str, Any]) -> Any:
        """Call the function from a thread: it runs on the builder's loop, in the rollout of the thread."""
        begun = threading.Event()

        async def invoke() -> Any:
            begun.set()
            return await self._fn.ainvoke(self._fn.from_arguments(arguments))

        future = asyncio.run_coroutine_threadsafe(invoke(), self._loop)
        if threading.get_ident() == self._thread or not begun.wait(self._patience_s):
            future.cancel()
            raise WorkflowError(
                f"the tool '{self.name}' cannot run: the agent that called it blocks the event loop",
                hint="await the framework's async API, or make the workflow a plain `def`, which runs in a thread",
            )
        return future.result()


def as_text(result: Any) -> str:
    """A tool's result as text for the model: text unchanged, None as an empty text, anything else as JSON."""
    if result is None:
        return ""
    return result if isinstance(result, str) else to_json(result, fallback=str).decode()


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON schema with every reference replaced by its definition, for frameworks that support no references.

    A recursive definition becomes `{"type": "object"}`.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})

    def replaced(part: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [replaced(each, inside) for each in part]
        if not isinstance(part, Mapping):
            return part
        rest = {key: replaced(value, inside) for key, value in part.items() if key != "$ref"}
        if not isinstance(reference := part.get("$ref"), str):
            return rest
        name = reference.removeprefix("#/$defs/")
        if name in inside or name not in definitions:
            return {"type": "object", **rest}
        return {**replaced(definitions[name], (*inside, name)), **rest}

    return {key: replaced(value, ()) for key, value in schema.items() if key != "$defs"}

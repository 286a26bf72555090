"""smolagents: its OpenAI model on a recorded blocking client, and functions as its tools."""

from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

from pydantic_core import to_jsonable_python
from smolagents import OpenAIModel, Tool, local_python_executor
from smolagents.models import REMOVE_PARAMETER

from nat.builder.tool import ToolFunction, inlined
from nat.data_models.llm import LLMFrameworkEnum
from nat.plugins.llms.client import open_sync_client
from nat.plugins.llms.openai import OpenAIModelConfig

P = ParamSpec("P")
T = TypeVar("T")


class ContextThreadPool(ThreadPoolExecutor):
    """Each call gets a copy of the context that it was submitted in."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The pool's `submit`."""
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))


@asynccontextmanager
async def open_model(config: OpenAIModelConfig, *, llm_name: str | None) -> AsyncGenerator[OpenAIModel, None]:
    """A model for all of smolagents' agents; the client retries, so smolagents' own retries are off.

    `tool_choice` is removed: tool-calling agents would require a call in each answer, and a server that enforces this
    samples under a grammar, so that the log probabilities are not those of the policy.

    The thread pool is replaced: code agents run their code in a thread without context variables, where calls of tools
    and other agents would belong to no rollout.
    """
    local_python_executor.ThreadPoolExecutor = ContextThreadPool
    with open_sync_client(config, llm_name=llm_name, framework=LLMFrameworkEnum.SMOLAGENTS) as client:
        yield OpenAIModel(model_id=config.model_name, client=client, retry=False, tool_choice=REMOVE_PARAMETER)


class FunctionTool(Tool):
    """Runs on the builder's loop and blocks its thread meanwhile; smolagents passes exceptions to the model."""

    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, tool: ToolFunction) -> None:
        self.name = tool.name
        self.description = tool.description
        self.inputs = _inputs_of(tool.parameters)
        self._tool = tool
        super().__init__()

    def forward(self, *values: Any, **arguments: Any) -> Any:
        """The result as plain data, for the code of code agents."""
        named = dict(zip(self.inputs, values, strict=False)) | arguments
        return to_jsonable_python(self._tool.call_blocking(named), fallback=str)


def as_tool(tool: ToolFunction) -> Tool:
    """A tool for `ToolCallingAgent(tools=[…])` and `CodeAgent(tools=[…])`."""
    return FunctionTool(tool)


def _inputs_of(parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a JSON schema without references; optional ones are `nullable`."""
    whole = inlined(parameters)
    required = whole.get("required", ())
    inputs = {}
    for name, schema in whole.get("properties", {}).items():
        entry = {"type": "any", "description": schema.get("title", name), **schema}
        inputs[name] = entry if name in required else {**entry, "nullable": True}
    return inputs

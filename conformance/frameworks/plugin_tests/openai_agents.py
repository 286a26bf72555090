"""The OpenAI Agents SDK sends traces only if the user turns them on; an error of the harness ends the run."""

import asyncio
import json
import os
from typing import Any

from agents import FunctionTool, add_trace_processor, set_tracing_disabled, trace
from agents.tracing import TracingProcessor

from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.tool import ToolFunction
from nat.errors import WorkflowError
from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.frameworks.openai_agents import as_tool, open_model

CONFIG = OpenAIModelConfig(model_name="m", base_url="http://127.0.0.1:9/v1")


class Reports(TracingProcessor):
    """Collects the traces that would be sent."""

    def __init__(self) -> None:
        self.traces: list[Any] = []

    def on_trace_start(self, trace: Any) -> None:
        self.traces.append(trace)

    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None: ...
    def on_span_end(self, span: Any) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


async def tracing_is_off_by_default() -> None:
    """The plug-in turns tracing off with the SDK's own variable; the user's value wins."""
    os.environ.pop("OPENAI_AGENTS_DISABLE_TRACING", None)
    reports = Reports()
    async with open_model(CONFIG, llm_name="student"):
        add_trace_processor(reports)
        with trace("a run"):
            assert reports.traces == []
        set_tracing_disabled(False)
        with trace("a run"):
            assert len(reports.traces) == 1
        set_tracing_disabled(True)


async def the_model_sees_only_errors_of_the_workflow() -> None:
    """The model sees a tool's exception; an error of the harness ends the run."""

    async def tool(kind: str) -> str:
        raise WorkflowError("a circle") if kind == "harness" else ValueError("a bad day")

    made: FunctionTool = as_tool(ToolFunction("tool", LambdaFunction.from_info(info=FunctionInfo.from_fn(tool))))
    context: Any = None
    assert "ValueError: a bad day" in await made.on_invoke_tool(context, json.dumps({"kind": "own"}))
    assert "does not fit" in await made.on_invoke_tool(context, "{}")
    try:
        await made.on_invoke_tool(context, json.dumps({"kind": "harness"}))
    except WorkflowError:
        return
    raise AssertionError("the model saw an error of the harness")


async def main() -> None:
    await tracing_is_off_by_default()
    await the_model_sees_only_errors_of_the_workflow()


if __name__ == "__main__":
    asyncio.run(main())

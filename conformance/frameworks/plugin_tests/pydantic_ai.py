"""A tool of Pydantic AI may fail any number of times: the model sees each failure, and the run continues."""

import asyncio

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.tool import ToolFunction
from nat.errors import WorkflowError
from nat.plugins.frameworks.pydantic_ai import as_tool

ATTEMPTS = 4


async def run(error: Exception) -> list[ModelMessage]:
    """Run an agent whose model calls a failing tool several times and then gives up."""

    async def tool() -> str:
        raise error

    def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        asked = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse([ToolCallPart("tool", {}) if asked < ATTEMPTS else TextPart("enough")])

    made = as_tool(ToolFunction("tool", LambdaFunction.from_info(info=FunctionInfo.from_fn(tool))))
    result = await Agent(FunctionModel(model), tools=[made]).run("go")
    assert result.output == "enough"
    return result.all_messages()


async def failures_are_answers() -> None:
    """`ModelRetry` would end the run at the second one."""
    told = [
        part.content
        for message in await run(ValueError("a bad day"))
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert told == ["ValueError: a bad day"] * ATTEMPTS


async def other_errors_are_raised_unchanged() -> None:
    """An error of the harness ends the run unchanged; the framework's own exceptions reach the framework."""
    for error in (WorkflowError("a circle"), ModelRetry("again")):
        ended: Exception | None = None
        try:
            await run(error)
        except Exception as raised:  # noqa: BLE001 - compared right below
            ended = raised
        assert isinstance(ended, WorkflowError) or "exceeded" in str(ended), f"{error!r} was shown to the model"


async def main() -> None:
    await failures_are_answers()
    await other_errors_are_raised_unchanged()


if __name__ == "__main__":
    asyncio.run(main())

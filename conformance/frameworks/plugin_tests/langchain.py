"""LangChain's model sends only what agent and YAML set; tool errors go to the model."""

import asyncio

from conformance.frameworks.server import serving
from langchain_core.messages import ToolMessage

from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.tool import ToolFunction
from nat.errors import WorkflowError
from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.frameworks.langchain import as_tool, open_model

TEXT = "hi [once-0 hello]"
"""Carries the marker by which the scripted server knows its answer."""


async def nothing_is_added() -> None:
    """A request has the agent's messages, the model's name and the YAML's settings; the agent's settings win."""
    with serving() as server:
        plain = OpenAIModelConfig(model_name="m", base_url=server.base_url)
        async with open_model(plain, llm_name="student") as model:
            await model.ainvoke(TEXT)
        config = plain.model_copy(update={"temperature": 0.5, "max_tokens": 7})
        async with open_model(config, llm_name="student") as model:
            await model.ainvoke(TEXT)
            await model.bind(temperature=0.1, max_tokens=3).ainvoke(TEXT)
            http_clients = model.http_client, model.http_async_client
    asked = {"messages": [{"role": "user", "content": TEXT}], "model": "m", "stream": False}
    assert [served.chat for served in server.log] == [
        asked,
        asked | {"temperature": 0.5, "max_tokens": 7},
        asked | {"temperature": 0.1, "max_completion_tokens": 3},
    ]
    assert all(client.is_closed for client in http_clients), "closed with the builder's exit stack"


async def the_model_sees_tool_errors() -> None:
    """The model sees errors of the function and of its arguments; an error of the harness ends the run."""

    async def divide(a: int, b: int) -> float:
        if b < 0:
            raise WorkflowError("a circle")
        return a / b

    tool = as_tool(ToolFunction("divide", LambdaFunction.from_info(info=FunctionInfo.from_fn(divide))))
    for arguments, told in (({"a": 1, "b": 0}, "ZeroDivisionError: division by zero"), ({"a": 1}, "validation error")):
        call = {"name": "divide", "args": arguments, "id": "1", "type": "tool_call"}
        for message in (await tool.ainvoke(call), await asyncio.to_thread(tool.invoke, call)):
            assert isinstance(message, ToolMessage)
            assert message.status == "error"
            assert told in str(message.content)
    try:
        await tool.ainvoke({"a": 1, "b": -1})
    except WorkflowError:
        return
    raise AssertionError("the model saw an error of the harness")


async def main() -> None:
    await nothing_is_added()
    await the_model_sees_tool_errors()


if __name__ == "__main__":
    asyncio.run(main())

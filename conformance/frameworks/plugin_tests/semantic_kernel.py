"""A kernel function's arguments may have any names, and nested models keep their schema."""

import asyncio

from pydantic import BaseModel
from semantic_kernel import Kernel
from semantic_kernel.functions import KernelArguments, KernelPlugin

from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.tool import ToolFunction
from nat.plugins.frameworks.semantic_kernel import as_tool


class Place(BaseModel):
    """A part of an argument."""

    city: str


async def restart(service: str, arguments: list[str], at: Place, times: int = 1) -> str:
    """Restart a service."""
    return f"{service} {arguments} {at.city} {times}"


async def arguments_are_the_models() -> None:
    """The model may set arguments whose names Semantic Kernel reserves; omitted ones have the function's default."""
    function = as_tool(ToolFunction("restart", LambdaFunction.from_info(info=FunctionInfo.from_fn(restart))))
    kernel = Kernel()
    kernel.add_plugin(KernelPlugin(name="tools", functions=[function]))
    given = KernelArguments(service="mail", arguments=["-f"], at={"city": "Ulm"})
    result = await kernel.invoke(plugin_name="tools", function_name="restart", arguments=given)
    assert str(result) == "mail ['-f'] Ulm 1"
    schemas = {parameter.name: parameter for parameter in function.parameters}
    assert schemas["at"].schema_data["properties"]["city"]["type"] == "string"
    assert [name for name, parameter in schemas.items() if parameter.is_required] == ["service", "arguments", "at"]


if __name__ == "__main__":
    asyncio.run(arguments_are_the_models())

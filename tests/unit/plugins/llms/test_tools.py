from types import SimpleNamespace

import pytest

from nat.builder.function_info import FunctionInfo
from nat.builder.threads import run_in_thread
from nat.builder.workflow_builder import WorkflowBuilder
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
from nat.errors import WorkflowError
from nat.registry.catalog import pushed_catalog


class DivideConfig(FunctionBaseConfig, name="divide"):
    pass


@pytest.fixture
def registered():
    with pushed_catalog():

        @register_function(config_type=DivideConfig)
        async def build(config, builder):
            async def divide(a: int, b: int) -> float:
                """Divide a number by another."""
                if b < 0:
                    raise WorkflowError("the workflow is broken")
                return a / b

            yield FunctionInfo.from_fn(divide)

        yield


def call(arguments):
    return SimpleNamespace(id="call_1", function=SimpleNamespace(name="divide", arguments=arguments))


@pytest.fixture(params=["openai", "openai_sync"])
async def ask(request, registered):
    """The tool of a client, and a function that answers a call of it."""
    async with WorkflowBuilder() as builder:
        await builder.add_function("divide", DivideConfig())
        [tool] = await builder.get_tools(tool_names=["divide"], wrapper_type=request.param)

        async def answer(arguments):
            if request.param == "openai":
                return await tool.answer(call(arguments))
            return await run_in_thread(tool.answer, call(arguments))

        yield tool, answer


async def test_a_tool_has_the_form_of_a_request(ask):
    """A tool is the JSON object that goes under `tools`."""
    tool, _ = ask
    assert tool["type"] == "function"
    assert tool["function"]["name"] == tool.name == "divide"
    assert tool["function"]["description"] == "Divide a number by another."
    assert tool["function"]["parameters"]["required"] == ["a", "b"]


async def test_a_call_is_answered_with_a_message(ask):
    """The message has the call's id and the result as text."""
    _, answer = ask
    assert await answer('{"a": 1, "b": 2}') == {"role": "tool", "tool_call_id": "call_1", "content": "0.5"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"a": 1, "b": 0}', "Error: ZeroDivisionError: division by zero"),
        ('{"a": 1}', "Error: TypeError: ['a'] does not fit DivideInput: b: this key is required"),
        ('{"a": 1', "Error: JSONDecodeError: "),
    ],
)
async def test_errors_of_tools_are_passed_to_the_model(ask, arguments, told):
    """Exceptions, wrong arguments and invalid JSON become results, and the agent continues."""
    _, answer = ask
    assert (await answer(arguments))["content"].startswith(told)


async def test_errors_of_the_harness_are_not_passed_to_the_model(ask):
    """A model cannot fix a broken workflow, so the rollout fails."""
    _, answer = ask
    with pytest.raises(WorkflowError, match="the workflow is broken"):
        await answer('{"a": 1, "b": -1}')

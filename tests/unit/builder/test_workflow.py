"""A workflow gives its output whole or in pieces, between its START and END steps."""

from collections.abc import AsyncGenerator

import pytest

from nat.builder.context import ContextState
from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.workflow import Workflow


async def words(question: str) -> AsyncGenerator[str, None]:
    for word in question.split():
        if word == "stop":
            raise ValueError(word)
        yield word


async def streamed(question: str) -> tuple[list[str], list]:
    steps: list = []
    state = ContextState()
    state.intermediate_step_manager.subscribe(steps.append)
    workflow = Workflow(LambdaFunction.from_info(info=FunctionInfo.from_fn(words), instance_name="<workflow>"))
    with state.active():
        try:
            got = [piece async for piece in workflow.astream(question)]
        finally:
            assert [step.event_type for step in steps] == [
                "WORKFLOW_START",
                "FUNCTION_START",
                "FUNCTION_END",
                "WORKFLOW_END",
            ]
    return got, steps


async def test_a_stream_is_one_run_of_the_workflow():
    """The END step of a streamed run holds all pieces."""
    got, steps = await streamed("a b")
    assert got == steps[-1].data.output == ["a", "b"]
    assert steps[0].UUID == steps[-1].UUID


async def test_a_stream_that_breaks_ends_the_workflow():
    """A stream that raises or is closed early still pushes the END step."""
    with pytest.raises(ValueError, match="stop"):
        await streamed("a stop b")

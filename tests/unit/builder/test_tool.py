"""Tools of frameworks, and schemas with inlined definitions."""

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from nat.builder.context import Context, ContextState
from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.builder.threads import run_in_thread
from nat.builder.tool import ToolFunction, as_text, inlined
from nat.errors import WorkflowError


class Point(BaseModel):
    x: int
    y: int


async def add(a: int, b: int = 1) -> int:
    """The sum."""
    return a + b


async def size(table: dict) -> int:
    return len(table)


async def mirrored(point: Point) -> Point:
    return Point(x=point.y, y=point.x)


def tool(fn, name="tool"):
    return ToolFunction(name, LambdaFunction.from_info(info=FunctionInfo.from_fn(fn), instance_name=name))


@pytest.mark.parametrize(
    ("fn", "arguments", "returned"),
    [
        (add, {"a": 2, "b": 3}, 5),
        (add, {"a": "2"}, 3),
        (size, {"table": {"x": 1, "y": 2}}, 2),
        (mirrored, {"x": 1, "y": 2}, Point(x=2, y=1)),
    ],
)
async def test_arguments_reach_the_function_by_name(fn, arguments, returned):
    """A single argument that is a mapping is passed by name, too."""
    assert await tool(fn).call(arguments) == returned


async def test_arguments_that_do_not_fit_are_an_error():
    """The error quotes the given arguments for the model."""
    with pytest.raises(TypeError, match=r"\['c'\] does not fit AddInput: a: this key is required"):
        await tool(add).call({"c": 1})


async def test_a_call_from_a_thread_runs_on_the_loop_in_the_threads_rollout():
    """The function runs on the builder's loop with the context of the calling code."""
    loop = asyncio.get_running_loop()

    async def where(word: str) -> str:
        assert asyncio.get_running_loop() is loop
        return f"{word} {Context.get().workflow_run_id} {Context.get().active_function.function_name}"

    asked = tool(where, "asked")
    with ContextState(workflow_run_id="this rollout").active():
        assert await run_in_thread(asked.call_blocking, {"word": "in"}) == "in this rollout asked"


async def test_a_blocking_call_inside_the_loop_is_refused():
    """The call would wait for its own loop; the error has the remedy."""
    with pytest.raises(WorkflowError, match=r"(?s)'tool' cannot run: .* blocks the event loop.*plain `def`"):
        tool(add).call_blocking({"a": 1})


async def test_an_agent_that_blocks_the_loop_does_not_hang():
    """A blocking agent in an `async def` waits for a thread, the thread for a tool, and the tool for the loop."""
    held = ToolFunction("held", tool(add)._fn, loop_timeout_s=0.01)
    raised = []

    def agent() -> None:
        try:
            held.call_blocking({"a": 1})
        except WorkflowError as error:
            raised.append(str(error))

    thread = threading.Thread(target=agent)
    thread.start()
    thread.join()  # as such an agent does
    assert "'held' cannot run" in raised[0]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("a text", "a text"),
        (None, ""),
        (5, "5"),
        ({"a": [1.5, True, None]}, '{"a":[1.5,true,null]}'),
        (Point(x=1, y=2), '{"x":1,"y":2}'),
        ([Point(x=1, y=2)], '[{"x":1,"y":2}]'),
    ],
)
def test_results_are_passed_as_text(result: Any, text: str):
    """A text stays unchanged; any other result becomes JSON."""
    assert as_text(result) == text


class Place(BaseModel):
    city: str = Field(description="its name")


class Tree(BaseModel):
    below: list["Tree"] = []


class Trip(BaseModel):
    start: Place = Field(description="where it begins")
    stops: list[Place] = []
    plan: Tree | None = None
    days: int = 1


def test_definitions_are_inlined():
    """Keywords beside a reference are kept; a recursive model becomes any object."""
    properties = inlined(Trip.model_json_schema())["properties"]
    city = {"description": "its name", "title": "City", "type": "string"}
    assert properties["start"]["properties"] == {"city": city}
    assert properties["start"]["description"] == "where it begins"
    assert properties["stops"]["items"]["properties"] == {"city": city}
    assert properties["plan"]["anyOf"][0]["properties"]["below"]["items"] == {"type": "object"}
    assert properties["days"] == {"default": 1, "title": "Days", "type": "integer"}

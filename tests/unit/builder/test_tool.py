"""A schema whose definitions are written out."""

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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


async def test_a_tool_has_what_frameworks_show_a_model():
    """Name, description and the arguments as a schema; without a docstring the name describes it."""
    assert (tool(add).name, tool(add).description, tool(size).description) == ("tool", "The sum.", "tool")
    assert set(tool(add).parameters["properties"]) == {"a", "b"}
    assert tool(add).parameters["required"] == ["a"]
    assert tool(add).schema.model_validate({"a": "2"}).a == 2


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
    """Also where the only argument is a mapping itself."""
    assert await tool(fn).call(arguments) == returned


async def test_arguments_that_do_not_fit_are_an_error():
    """The message says what was given, for the model to read."""
    with pytest.raises(TypeError, match=r"\['c'\] does not fit AddInput: a: Field required"):
        await tool(add).call({"c": 1})


async def test_a_call_from_a_thread_runs_on_the_loop_in_the_threads_rollout():
    """The function sees the loop of the builder and the context of the code that called."""
    loop = asyncio.get_running_loop()

    async def where(word: str) -> str:
        assert asyncio.get_running_loop() is loop
        return f"{word} {Context.get().workflow_run_id} {Context.get().active_function.function_name}"

    asked = tool(where, "asked")
    with ContextState(workflow_run_id="this rollout").active():
        assert await run_in_thread(asked.call_blocking, {"word": "in"}) == "in this rollout asked"


async def test_a_call_from_another_loop_runs_on_the_builders():
    """What a function opened belongs to the builder's loop, whichever loop a framework gives its agent."""
    loop = asyncio.get_running_loop()

    async def where(word: str) -> str:
        assert asyncio.get_running_loop() is loop
        return f"{word} {Context.get().workflow_run_id}"

    asked = tool(where)
    with ContextState(workflow_run_id="this rollout").active():
        assert await run_in_thread(asyncio.run, asked.call({"word": "in"})) == "in this rollout"


async def test_a_blocking_call_inside_the_loop_is_refused():
    """It would wait for itself; the error says what to do."""
    with pytest.raises(WorkflowError, match=r"(?s)'tool' cannot run: .* blocks the event loop.*plain `def`"):
        tool(add).call_blocking({"a": 1})


async def test_an_agent_that_holds_up_the_loop_does_not_hang():
    """A blocking agent in an `async def` waits for a thread, which waits for a tool, which waits for the loop."""
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
def test_results_are_told_as_text(result: Any, text: str):
    """A text stays as it is; all else is JSON."""
    assert as_text(result) == text


LEAVES = st.sampled_from([{"type": "integer"}, {"type": "string", "enum": ["a", "b"]}, {"$ref": "#/$defs/A"}])
PARTS = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, part),
        st.builds(lambda some: {"anyOf": some}, st.lists(part, min_size=1, max_size=3)),
        st.builds(lambda one, two: {"type": "object", "properties": {"x": one, "y": two}}, part, part),
        st.just({"$ref": "#/$defs/B"}),
    ),
    max_leaves=8,
)


class Place(BaseModel):
    city: str = Field(description="its name")


class Tree(BaseModel):
    below: list["Tree"] = []


class Trip(BaseModel):
    start: Place = Field(description="where it begins")
    stops: list[Place] = []
    plan: Tree | None = None
    days: int = 1


@given(a=PARTS, b=PARTS, part=PARTS)
def test_no_reference_is_left_and_it_ends(a: dict[str, Any], b: dict[str, Any], part: dict[str, Any]):
    """Whatever refers to whatever, itself included."""
    schema = {"properties": {"p": part}, "$defs": {"A": a, "B": b}}
    assert "$ref" not in json.dumps(inlined(schema))


@given(part=PARTS.filter(lambda part: "$ref" not in json.dumps(part)))
def test_what_refers_to_nothing_stays_as_it_is(part: dict[str, Any]):
    """A schema without references is its own."""
    assert inlined({"properties": {"p": part}}) == {"properties": {"p": part}}


def test_definitions_stand_where_they_are_used():
    """What is said beside a reference counts; a model inside of itself is any object there."""
    properties = inlined(Trip.model_json_schema())["properties"]
    city = {"description": "its name", "title": "City", "type": "string"}
    assert properties["start"]["properties"] == {"city": city}
    assert properties["start"]["description"] == "where it begins"
    assert properties["stops"]["items"]["properties"] == {"city": city}
    assert properties["plan"]["anyOf"][0]["properties"]["below"]["items"] == {"type": "object"}
    assert properties["days"] == {"default": 1, "title": "Days", "type": "integer"}


def test_a_model_that_holds_itself_has_its_properties():
    """Pydantic puts such a model among the definitions and refers to it, so that the schema itself has none."""
    assert inlined(Tree.model_json_schema())["properties"]["below"]["items"] == {"type": "object"}

from collections.abc import AsyncGenerator

import pytest
from pydantic import BaseModel

from nat.builder.context import ContextState
from nat.builder.function import LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.errors import WorkflowError


class Question(BaseModel):
    text: str
    limit: int = 3


async def ask(question: Question) -> str:
    return question.text * question.limit


async def double(value: int) -> int:
    return 2 * value


async def join(left: str, right: str = "!") -> str:
    return left + right


async def letters(text: str) -> AsyncGenerator[str, None]:
    for letter in text:
        yield letter


def function(fn, **options) -> LambdaFunction:
    return LambdaFunction.from_info(info=FunctionInfo.from_fn(fn, **options), instance_name=fn.__name__)


@pytest.mark.parametrize(
    ("fn", "value", "expected"),
    [
        (double, 4, 8),
        (double, "4", 8),
        (double, {"value": 4}, 8),
        (ask, Question(text="a"), "aaa"),
        (ask, {"text": "a", "limit": 1}, "a"),
        (ask, '{"text": "b", "limit": 2}', "bb"),
        (join, {"left": "a"}, "a!"),
        (join, '{"left": "a", "right": "b"}', "ab"),
    ],
)
async def test_input_conversion(fn, value, expected):
    """An input is converted to the function's type by its schema, from JSON text, or by pydantic's lax rules."""
    assert await function(fn).ainvoke(value) == expected


@pytest.mark.parametrize(
    ("fn", "value", "message"),
    [
        (double, "four", r"input of the function 'double': 'four' \(str\) cannot be converted to int"),
        (ask, {"txt": "a"}, "does not fit Question: text: this key is required"),
        (ask, 3, "cannot be converted to Question"),
    ],
)
async def test_an_input_that_does_not_fit_is_an_error(fn, value, message):
    """The error names the function, the value and the expected type."""
    with pytest.raises(TypeError, match=message):
        await function(fn).ainvoke(value)


async def test_none_passes():
    """None is passed to the function unchanged."""

    async def maybe(value: int) -> str:
        return str(value)

    assert await function(maybe).ainvoke(None) == "None"


@pytest.mark.parametrize(("to_type", "expected"), [(None, 8), (str, "8"), (float, 8.0)])
async def test_the_answer_is_converted_on_request(to_type, expected):
    """`to_type` is the type that the caller gets."""
    assert await function(double).ainvoke(4, to_type=to_type) == expected


async def test_a_function_is_called_with_its_own_arguments():
    """Positional and keyword arguments are packed into the schema."""
    assert await function(join).acall_invoke("a", "b") == "ab"
    assert await function(join).acall_invoke("a", right="c") == "ac"
    assert await function(ask).acall_invoke(text="q", limit=1) == "q"
    assert await function(double).acall_invoke(3) == 6
    with pytest.raises(WorkflowError, match="takes 2 arguments, but was given 3"):
        await function(join).acall_invoke("a", "b", "c")


async def test_streaming():
    """Chunks arrive one by one; invoking a function that only streams is an error that says so."""
    streaming = function(letters)
    assert [c async for c in streaming.astream("ab")] == ["a", "b"]
    assert [c async for c in streaming.acall_stream(text="cd")] == ["c", "d"]
    assert [c async for c in function(double).astream(2)] == [4]
    assert (streaming.has_single_output, streaming.has_streaming_output) == (False, True)
    with pytest.raises(WorkflowError, match="only streams"):
        await streaming.ainvoke("ab")


async def test_each_call_is_a_span():
    """START and END have the function's ancestry; a failed call has an END without output."""

    async def fails(value: int) -> int:
        raise KeyError(value)

    steps = []
    with ContextState().active() as context:
        context.intermediate_step_manager.subscribe(steps.append)
        await function(double).ainvoke(1)
        with pytest.raises(KeyError):
            await function(fails).ainvoke(1)
        assert context.active_function.function_name == "root"
    assert [(s.event_type, s.name, s.function_ancestry.function_name) for s in steps] == [
        ("FUNCTION_START", "double", "double"),
        ("FUNCTION_END", "double", "double"),
        ("FUNCTION_START", "fails", "fails"),
        ("FUNCTION_END", "fails", "fails"),
    ]
    assert (steps[1].data.input, steps[1].data.output, steps[3].data.output) == (1, 2, None)

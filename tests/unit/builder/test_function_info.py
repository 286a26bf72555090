import threading
from collections.abc import AsyncGenerator
from contextvars import ContextVar
from typing import Annotated

import pytest
from pydantic import BaseModel

from nat.builder.function_info import FunctionInfo
from nat.errors import WorkflowError

variable: ContextVar[str] = ContextVar("variable", default="outside")


class Question(BaseModel):
    text: str
    limit: int = 3


async def double(value: int) -> int:
    """Twice the value."""
    return 2 * value


async def join(left: str, right: str = "!") -> str:
    return left + right


async def letters(text: str) -> AsyncGenerator[str, None]:
    for letter in text:
        yield letter


def blocking(value: int) -> str:
    return f"{threading.current_thread().name} {variable.get()} {value}"


async def test_a_coroutine_function():
    """Types, schema and description come from the function."""
    info = FunctionInfo.from_fn(double)
    assert (info.input_type, info.single_output_type, info.description) == (int, int, "Twice the value.")
    assert list(info.input_schema.model_fields) == ["value"]
    assert await info.single_fn(4) == 8
    assert [chunk async for chunk in info.stream_fn(4)] == [8]


async def test_an_async_generator_only_streams():
    """A generator has no single answer without a function that joins its chunks."""
    info = FunctionInfo.from_fn(letters)
    assert info.single_fn is None
    assert info.stream_output_type is str
    assert [chunk async for chunk in info.stream_fn("ab")] == ["a", "b"]


async def test_chunks_can_be_joined():
    """`stream_to_single_fn` joins the chunks to one answer."""

    async def joined(chunks: AsyncGenerator[str, None]) -> str:
        return "".join([chunk async for chunk in chunks])

    info = FunctionInfo.create(stream_fn=letters, stream_to_single_fn=joined)
    assert await info.single_fn("abc") == "abc"
    assert info.single_output_type is str


async def test_a_plain_function_runs_in_a_thread_with_the_context():
    """Blocking code does not block other rollouts, and sees its own context variables."""
    variable.set("inside")
    name, seen, value = (await FunctionInfo.from_fn(blocking).single_fn(3)).split()
    assert name != threading.current_thread().name
    assert (seen, value) == ("inside", "3")


async def test_an_exception_in_a_thread_is_raised_where_it_is_awaited():
    """Exceptions are raised where the call is awaited, even StopIteration, which a future cannot carry."""

    def fails(value: int) -> int:
        raise (KeyError if value else StopIteration)(value)

    single = FunctionInfo.from_fn(fails).single_fn
    with pytest.raises(KeyError):
        await single(1)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await single(0)


def test_missing_annotations_are_named():
    """The error names the arguments that lack an annotation."""

    async def bare(a, b: int):
        return a + b

    with pytest.raises(WorkflowError, match=r"bare\(\): no annotation on a, return"):
        FunctionInfo.from_fn(bare)
    with pytest.raises(TypeError, match="None is no function; what makes the agent has to return"):
        FunctionInfo.from_fn(None)


async def test_a_schema_can_be_given():
    """A given schema must have a field for each argument."""

    class Sides(BaseModel):
        left: str
        right: str

    info = FunctionInfo.from_fn(join, input_schema=Sides)
    assert await info.single_fn(Sides(left="a", right="b")) == "ab"
    with pytest.raises(WorkflowError, match="differ in"):
        FunctionInfo.from_fn(join, input_schema=Question)


def test_an_info_needs_a_callable():
    """An info without a callable is refused, and so is one whose two callables take different inputs."""
    with pytest.raises(WorkflowError, match="needs single_fn or stream_fn"):
        FunctionInfo.create()
    with pytest.raises(WorkflowError, match="must agree"):
        FunctionInfo.create(single_fn=double, stream_fn=letters)


def makes_letters(text: str) -> AsyncGenerator[str, None]:
    return letters(text)


def makes_annotated_letters(text: str) -> Annotated[AsyncGenerator[str, None], "a stream"]:
    return letters(text)


async def annotated_letters(text: str) -> Annotated[AsyncGenerator[Annotated[str, "a letter"], None], "a stream"]:
    for letter in text:
        yield letter


@pytest.mark.parametrize("fn", [makes_letters, makes_annotated_letters, annotated_letters])
async def test_every_function_that_gives_a_stream_streams(fn):
    """A plain function that returns an async generator streams, even with an `Annotated` return type."""
    info = FunctionInfo.from_fn(fn)
    assert info.single_fn is None
    assert [chunk async for chunk in info.stream_fn("ab")] == ["a", "b"]
    assert list(info.stream_output_schema.model_fields) == ["value"]
    assert info.stream_output_type in (str, Annotated[str, "a letter"])

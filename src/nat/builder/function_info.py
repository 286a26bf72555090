"""Wrap a callable with its schema, read from its annotations; a function's build function yields the result."""

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, create_model

from nat.builder.conversion import Converter
from nat.builder.threads import called
from nat.errors import WorkflowError

AnyFn = Callable[..., Any]
SingleFn = Callable[[Any], Awaitable[Any]]
StreamFn = Callable[[Any], AsyncGenerator[Any, None]]


@dataclass(frozen=True)
class Signature:
    """Input and output type of a function; several parameters become the fields of `schema`."""

    streams: bool
    name: str
    parameters: tuple[str, ...]
    input_type: Any
    schema: type[BaseModel]
    output_type: Any


def read_signature(fn: AnyFn) -> Signature:
    """The signature of a function, bound method, partial or callable object; WorkflowError if it is not annotated."""
    if not callable(fn):
        raise TypeError(f"{fn!r} is no function; what makes the agent has to return the function that answers")
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name = inner.__name__ if inspect.isroutine(inner) else type(inner).__name__
    call = inner if inspect.isroutine(inner) else type(inner).__call__
    try:
        hints, bare = get_type_hints(call, include_extras=True), get_type_hints(call)
    except NameError as error:
        raise WorkflowError(f"{name}(): an annotation cannot be resolved: {error}") from error
    parameters = inspect.signature(fn).parameters
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters.values()):
        raise WorkflowError(f"{name}(): *args and **kwargs have no schema", hint="name and annotate each argument")
    if missing := [each for each in [*parameters, "return"] if each not in hints]:
        raise WorkflowError(f"{name}(): no annotation on {', '.join(missing)}", hint="annotate arguments and return")
    fields = {
        p.name: (hints[p.name], ... if p.default is inspect.Parameter.empty else p.default) for p in parameters.values()
    }
    only: Any = hints[next(iter(fields))] if len(fields) == 1 else None
    schema = _schema(only, f"{name}_input", fields)
    output = bare["return"]
    promises_stream = get_origin(output) in (AsyncGenerator, AsyncIterator, AsyncIterable)
    streams = inspect.isasyncgenfunction(call) or (promises_stream and not inspect.iscoroutinefunction(call))
    if streams and promises_stream:
        output = get_args(output)[0]
    return Signature(streams, name, tuple(fields), schema if only is None else only, schema, output)


def _schema(wanted: Any, name: str, fields: dict[str, Any]) -> type[BaseModel]:
    """The type itself if it is a model, else a new one with these fields."""
    if isinstance(wanted, type) and issubclass(wanted, BaseModel):
        return wanted
    return create_model(name.strip("<>").title().replace("_", ""), **fields)


@dataclass(frozen=True, kw_only=True)
class FunctionInfo:
    """`single_fn` returns one value, `stream_fn` yields chunks; each takes one value."""

    single_fn: SingleFn | None
    stream_fn: StreamFn
    input_type: Any
    input_schema: type[BaseModel]
    single_output_type: Any
    single_output_schema: type[BaseModel] | None
    stream_output_type: Any
    stream_output_schema: type[BaseModel] | None
    description: str | None = None
    converters: Sequence[Converter] = ()

    @staticmethod
    def from_fn(
        fn: AnyFn,
        *,
        input_schema: type[BaseModel] | None = None,
        description: str | None = None,
        converters: Sequence[Converter] = (),
    ) -> "FunctionInfo":
        """Wrap a coroutine function, an async generator, or a plain function, which then runs in a thread.

        Arguments and return need annotations; several arguments become the fields of a generated schema.
        """
        part = "stream_fn" if read_signature(fn).streams else "single_fn"
        about: dict[str, Any] = {"input_schema": input_schema, "converters": converters, part: fn}
        return FunctionInfo.create(**about, description=inspect.getdoc(fn) if description is None else description)

    @staticmethod
    def create(
        *,
        single_fn: AnyFn | None = None,
        stream_fn: AnyFn | None = None,
        input_schema: type[BaseModel] | None = None,
        single_output_schema: type[BaseModel] | None = None,
        stream_output_schema: type[BaseModel] | None = None,
        single_to_stream_fn: AnyFn | None = None,
        stream_to_single_fn: AnyFn | None = None,
        description: str | None = None,
        converters: Sequence[Converter] | None = None,
    ) -> "FunctionInfo":
        """Create an info from parts; a missing single or stream function is derived from the other if possible."""
        read = [read_signature(fn) for fn in (single_fn, stream_fn) if fn is not None]
        if not read:
            raise WorkflowError("a FunctionInfo needs single_fn or stream_fn")
        first, last = read[0], read[-1]
        packed = len(first.parameters) != 1
        if first.streams is (single_fn is not None) or last.streams is (stream_fn is None):
            raise WorkflowError(f"{first.name}(): an async generator is a stream_fn, any other function a single_fn")
        if first.parameters != last.parameters or (not packed and first.input_type != last.input_type):
            raise WorkflowError(f"{first.name}() and {last.name}() take different inputs; single and stream must agree")
        if input_schema is not None and packed and set(first.parameters) != set(input_schema.model_fields):
            unknown = sorted(set(first.parameters) ^ set(input_schema.model_fields))
            wanted = f"its arguments and the fields of {input_schema.__name__}"
            raise WorkflowError(f"{first.name}(): {wanted} differ in {unknown}")

        def bound(fn: AnyFn, value: Any) -> AnyFn:
            if not packed:
                return functools.partial(fn, value)
            return functools.partial(fn, **{name: getattr(value, name) for name in first.parameters})

        async def single(value: Any) -> Any:
            if single_fn is not None:
                return await called(bound(single_fn, value))
            assert stream_to_single_fn is not None, "else there is no single_fn"
            return await stream_to_single_fn(stream(value))

        async def stream(value: Any) -> AsyncGenerator[Any, None]:
            if stream_fn is not None:
                chunks = bound(stream_fn, value)()
            elif single_to_stream_fn is not None:
                chunks = single_to_stream_fn(await single(value))
            else:
                yield await single(value)
                return
            async for chunk in chunks:
                yield chunk

        def schema_of(output: Any) -> type[BaseModel] | None:
            fields: dict[str, Any] = {"value": (output, ...)}
            return None if output in (None, type(None)) else _schema(output, f"{first.name}_output", fields)

        single_type = None if single_fn is None else first.output_type
        if single_fn is None and stream_to_single_fn is not None:
            single_type = get_type_hints(stream_to_single_fn).get("return", Any)
        return FunctionInfo(
            single_fn=None if single_fn is None and stream_to_single_fn is None else single,
            stream_fn=stream,
            input_type=input_schema if input_schema is not None and packed else first.input_type,
            input_schema=input_schema or first.schema,
            single_output_type=single_type,
            single_output_schema=single_output_schema or schema_of(single_type),
            stream_output_type=last.output_type,
            stream_output_schema=stream_output_schema or schema_of(last.output_type),
            description=description,
            converters=tuple(converters or ()),
        )

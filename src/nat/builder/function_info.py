"""Wrap a callable with its schema, read from its annotations; a function's build function yields the result."""

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeGuard, get_args, get_origin, get_type_hints

from pydantic import BaseModel, create_model

from nat.builder.conversion import Converter
from nat.builder.threads import called
from nat.errors import WorkflowError

AnyFn = Callable[..., Any]


@dataclass(frozen=True)
class Signature:
    """Input and output type of a function; several parameters become the fields of `schema`."""

    streams: bool
    name: str
    parameters: tuple[str, ...]
    input_type: Any
    schema: type[BaseModel]
    output_type: Any

    @property
    def packed(self) -> bool:
        """True if the function takes the fields of `schema` instead of one value."""
        return len(self.parameters) != 1

    def bound(self, fn: AnyFn, value: Any) -> AnyFn:
        """The function with its arguments for one value."""
        named = {name: getattr(value, name) for name in self.parameters} if self.packed else {}
        return functools.partial(fn, *(() if self.packed else (value,)), **named)


def read_signature(fn: AnyFn) -> Signature:
    """The signature of a function, bound method, partial or callable object; WorkflowError if it is not annotated."""
    if not callable(fn):
        raise TypeError(f"{fn!r} is no function; what makes the agent has to return the function that answers")
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name = inner.__name__ if inspect.isroutine(inner) else type(inner).__name__
    call = inner if inspect.isroutine(inner) else type(inner).__call__
    try:
        hints = get_type_hints(call, include_extras=True)
    except NameError as error:
        raise WorkflowError(f"{name}(): an annotation cannot be resolved: {error}") from error
    parameters = inspect.signature(fn).parameters
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters.values()):
        raise WorkflowError(f"{name}(): *args and **kwargs have no schema", hint="name and annotate each argument")
    if missing := [each for each in [*parameters, "return"] if each not in hints]:
        raise WorkflowError(f"{name}(): no annotation on {', '.join(missing)}", hint="annotate arguments and return")
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is inspect.Parameter.empty else p.default) for p in parameters.values()
    }
    input_type: Any = hints[next(iter(fields))] if len(fields) == 1 else None
    schema = input_type if _is_model(input_type) else create_model(f"{_camel(name)}Input", **fields)
    output = hints["return"]
    bare = output
    while get_origin(bare) is Annotated:
        bare = get_args(bare)[0]
    promises_stream = get_origin(bare) in (AsyncGenerator, AsyncIterator, AsyncIterable)
    streams = inspect.isasyncgenfunction(call) or (promises_stream and not inspect.iscoroutinefunction(call))
    if streams and promises_stream:
        output = get_args(bare)[0]
    return Signature(streams, name, tuple(fields), schema if input_type is None else input_type, schema, output)


def _schema_of(output_type: Any, name: str) -> type[BaseModel] | None:
    """A model for an output type: the type itself, or one with the single field `value`; None for no output."""
    if output_type in (None, type(None)):
        return None
    fields: dict[str, Any] = {"value": (output_type, ...)}
    return output_type if _is_model(output_type) else create_model(f"{_camel(name)}Output", **fields)


def _is_model(wanted: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(wanted, type) and issubclass(wanted, BaseModel)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.strip("<>_").split("_")) or "Function"


SingleFn = Callable[[Any], Awaitable[Any]]
StreamFn = Callable[[Any], AsyncGenerator[Any, None]]


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
    parameters: tuple[str, ...] = ()
    """The wrapped function's argument names, in order."""

    @staticmethod
    def from_fn(
        fn: AnyFn,
        *,
        input_schema: type[BaseModel] | None = None,
        description: str | None = None,
        converters: Sequence[Converter] | None = None,
    ) -> "FunctionInfo":
        """Wrap a coroutine function, an async generator, or a plain function, which then runs in a thread.

        Arguments and return need annotations; several arguments become the fields of a generated schema.
        """
        is_stream = read_signature(fn).streams
        return FunctionInfo.create(
            single_fn=None if is_stream else fn,
            stream_fn=fn if is_stream else None,
            input_schema=input_schema,
            description=description if description is not None else inspect.getdoc(fn),
            converters=converters,
        )

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
        if first.streams is (single_fn is not None) or last.streams is (stream_fn is None):
            raise WorkflowError(f"{first.name}(): an async generator is a stream_fn, any other function a single_fn")
        if first.parameters != last.parameters or (not first.packed and first.input_type != last.input_type):
            raise WorkflowError(f"{first.name}() and {last.name}() take different inputs; single and stream must agree")
        if input_schema is not None and first.packed and set(first.parameters) != set(input_schema.model_fields):
            unknown = sorted(set(first.parameters) ^ set(input_schema.model_fields))
            wanted = f"its arguments and the fields of {input_schema.__name__}"
            raise WorkflowError(f"{first.name}(): {wanted} differ in {unknown}")
        single: SingleFn | None = None
        single_type = None
        if single_fn is not None:
            single, single_type = functools.partial(_single, single_fn, first), first.output_type
            stream = functools.partial(_split, single, single_to_stream_fn)
        if stream_fn is not None:
            stream = functools.partial(_stream, stream_fn, last)
        if single is None and stream_to_single_fn is not None:
            single = functools.partial(_joined, stream, stream_to_single_fn)
            single_type = inspect.get_annotations(stream_to_single_fn, eval_str=True).get("return", Any)
        return FunctionInfo(
            single_fn=single,
            stream_fn=stream,
            input_type=input_schema if input_schema is not None and first.packed else first.input_type,
            input_schema=input_schema or first.schema,
            single_output_type=single_type,
            single_output_schema=single_output_schema or _schema_of(single_type, first.name),
            stream_output_type=last.output_type,
            stream_output_schema=stream_output_schema or _schema_of(last.output_type, first.name),
            description=description,
            converters=tuple(converters or ()),
            parameters=first.parameters,
        )


async def _single(fn: AnyFn, signature: Signature, value: Any) -> Any:
    return await called(signature.bound(fn, value))


async def _stream(fn: AnyFn, signature: Signature, value: Any) -> AsyncGenerator[Any, None]:
    async for chunk in signature.bound(fn, value)():
        yield chunk


async def _split(single: SingleFn, split: AnyFn | None, value: Any) -> AsyncGenerator[Any, None]:
    result = await single(value)
    if split is None:
        yield result
        return
    async for chunk in split(result):
        yield chunk


async def _joined(stream: StreamFn, join: AnyFn, value: Any) -> Any:
    return await join(stream(value))

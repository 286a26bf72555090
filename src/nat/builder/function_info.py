"""Wrap a callable with its schema, read from its annotations; a function's build function yields the result."""

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

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

    def arguments(self, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with for one value."""
        return ((), {name: getattr(value, name) for name in self.parameters}) if self.packed else ((value,), {})


def read_signature(fn: AnyFn) -> Signature:
    """The signature of a function, bound method, partial or callable object; WorkflowError if it is not annotated."""
    if not callable(fn):
        raise TypeError(f"{fn!r} is no function; what makes the agent has to return the function that answers")
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
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
    if _is_model(output_type):
        model: type[BaseModel] = output_type
        return model
    fields: dict[str, Any] = {"value": (output_type, ...)}
    return create_model(f"{_camel(name)}Output", **fields)


def _is_model(wanted: Any) -> bool:
    return isinstance(wanted, type) and get_origin(wanted) is None and issubclass(wanted, BaseModel)


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.strip("<>_").split("_")) or "Function"


SingleFn = Callable[[Any], Awaitable[Any]]
StreamFn = Callable[[Any], AsyncGenerator[Any, None]]


@dataclass(frozen=True, kw_only=True)
class FunctionInfo:
    """`single_fn` returns one value, `stream_fn` yields chunks; at least one is set, and each takes one value."""

    single_fn: SingleFn | None
    stream_fn: StreamFn | None
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
        single_to_stream_fn: Callable[[Any], Any] | None = None,
        stream_to_single_fn: Callable[[AsyncGenerator[Any, None]], Awaitable[Any]] | None = None,
        description: str | None = None,
        converters: Sequence[Converter] | None = None,
    ) -> "FunctionInfo":
        """Create an info from parts; a missing single or stream function is derived from the other if possible."""
        read_single = None if single_fn is None else read_signature(single_fn)
        read_stream = None if stream_fn is None else read_signature(stream_fn)
        signature = read_single or read_stream
        if signature is None:
            raise WorkflowError("a FunctionInfo needs single_fn or stream_fn")
        if read_single is not None and read_stream is not None:
            one, two = read_single, read_stream
            if one.parameters != two.parameters or (not one.packed and one.input_type != two.input_type):
                raise WorkflowError(
                    f"{one.name}() and {two.name}() take different inputs; single and stream must agree"
                )
        single = None if single_fn is None or read_single is None else _single(single_fn, read_single)
        stream = None if stream_fn is None or read_stream is None else _stream(stream_fn, read_stream)
        single_type = None if read_single is None else read_single.output_type
        stream_type = single_type if read_stream is None else read_stream.output_type
        if single is not None and stream is None:
            stream = _stream_of(single, single_to_stream_fn)
        elif stream is not None and single is None and stream_to_single_fn is not None:
            single = _single_of(stream, stream_to_single_fn)
            single_type = inspect.get_annotations(stream_to_single_fn, eval_str=True).get("return", Any)
        input_type = signature.input_type
        if input_schema is not None and signature.packed:
            input_type = input_schema
            if unknown := set(signature.parameters) ^ set(input_schema.model_fields):
                wanted = f"its arguments and the fields of {input_schema.__name__}"
                raise WorkflowError(f"{signature.name}(): {wanted} differ in {sorted(unknown)}")
        return FunctionInfo(
            single_fn=single,
            stream_fn=stream,
            input_type=input_type,
            input_schema=input_schema or signature.schema,
            single_output_type=single_type,
            single_output_schema=single_output_schema or _schema_of(single_type, signature.name),
            stream_output_type=stream_type,
            stream_output_schema=stream_output_schema or _schema_of(stream_type, signature.name),
            description=description,
            converters=tuple(converters or ()),
            parameters=signature.parameters,
        )


def _single(fn: AnyFn, signature: Signature) -> SingleFn:
    if signature.streams:
        raise WorkflowError(f"{signature.name}() is an async generator; give it as stream_fn")

    async def single(value: Any) -> Any:
        args, kwargs = signature.arguments(value)
        return await called(fn, *args, **kwargs)

    return single


def _stream(fn: AnyFn, signature: Signature) -> StreamFn:
    if not signature.streams:
        raise WorkflowError(f"{signature.name}() is not an async generator; give it as single_fn")

    async def stream(value: Any) -> AsyncGenerator[Any, None]:
        args, kwargs = signature.arguments(value)
        async for chunk in fn(*args, **kwargs):
            yield chunk

    return stream


def _stream_of(single: SingleFn, split: Callable[[Any], Any] | None) -> StreamFn:
    async def stream(value: Any) -> AsyncGenerator[Any, None]:
        result = await single(value)
        if split is None:
            yield result
            return
        async for chunk in split(result):
            yield chunk

    return stream


def _single_of(stream: StreamFn, join: Callable[[AsyncGenerator[Any, None]], Awaitable[Any]]) -> SingleFn:
    async def single(value: Any) -> Any:
        return await join(stream(value))

    return single

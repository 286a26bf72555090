"""A callable with its schema: what a function's build function yields."""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from nat.builder.conversion import Converter
from nat.builder.signature import AnyFn, Kind, Signature, read_signature, schema_of
from nat.builder.threads import run_in_thread
from nat.errors import WorkflowError

SingleFn = Callable[[Any], Awaitable[Any]]
StreamFn = Callable[[Any], AsyncGenerator[Any, None]]


@dataclass(frozen=True, kw_only=True)
class FunctionInfo:
    """`single_fn` gives one answer, `stream_fn` chunks; at least one of them is there, each takes one value."""

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
    """The names of the arguments, in order, as the wrapped function has them."""

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
        is_stream = read_signature(fn).kind is Kind.STREAM
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
        """Put an info together from parts; what is missing of single and stream is derived where it can be."""
        given = single_fn if single_fn is not None else stream_fn
        if given is None:
            raise WorkflowError("a FunctionInfo needs single_fn or stream_fn")
        if single_fn is not None and stream_fn is not None:
            _same_input(read_signature(single_fn), read_signature(stream_fn))
        signature = read_signature(given)
        single = None if single_fn is None else _single(single_fn, read_signature(single_fn))
        stream = None if stream_fn is None else _stream(stream_fn, read_signature(stream_fn))
        single_type = None if single_fn is None else read_signature(single_fn).output_type
        stream_type = single_type if stream_fn is None else read_signature(stream_fn).output_type
        if stream is None and single is not None:
            stream = _stream_of(single, single_to_stream_fn)
        elif single is None and stream is not None and stream_to_single_fn is not None:
            single = _single_of(stream, stream_to_single_fn)
            single_type = inspect.get_annotations(stream_to_single_fn, eval_str=True).get("return", Any)
        return FunctionInfo(
            single_fn=single,
            stream_fn=stream,
            input_type=_input_type(signature, input_schema),
            input_schema=input_schema or signature.schema,
            single_output_type=single_type,
            single_output_schema=single_output_schema or schema_of(single_type, signature.name),
            stream_output_type=stream_type,
            stream_output_schema=stream_output_schema or schema_of(stream_type, signature.name),
            description=description,
            converters=tuple(converters or ()),
            parameters=signature.parameters,
        )


def _input_type(signature: Signature, input_schema: type[BaseModel] | None) -> Any:
    if input_schema is None or not signature.packed:
        return signature.input_type
    unknown = set(signature.parameters) ^ set(input_schema.model_fields)
    if unknown:
        raise WorkflowError(
            f"{signature.name}(): its arguments and the fields of {input_schema.__name__} differ in {sorted(unknown)}"
        )
    return input_schema


def _same_input(single: Signature, stream: Signature) -> None:
    if single.parameters != stream.parameters or (not single.packed and single.input_type != stream.input_type):
        raise WorkflowError(f"{single.name}() and {stream.name}() take different inputs; single and stream must agree")


def _unpack(signature: Signature, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not signature.packed:
        return (value,), {}
    return (), {name: getattr(value, name) for name in signature.parameters}


def _single(fn: AnyFn, signature: Signature) -> SingleFn:
    if signature.kind is Kind.STREAM:
        raise WorkflowError(f"{signature.name}() is an async generator; give it as stream_fn")

    async def single(value: Any) -> Any:
        args, kwargs = _unpack(signature, value)
        if signature.kind is Kind.COROUTINE:
            return await fn(*args, **kwargs)
        result = await run_in_thread(fn, *args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return single


def _stream(fn: AnyFn, signature: Signature) -> StreamFn:
    if signature.kind is not Kind.STREAM:
        raise WorkflowError(f"{signature.name}() is no async generator; give it as single_fn")

    async def stream(value: Any) -> AsyncGenerator[Any, None]:
        args, kwargs = _unpack(signature, value)
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

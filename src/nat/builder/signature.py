"""Read from a function's annotations what it takes and what it gives."""

import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, create_model

from nat.errors import WorkflowError

AnyFn = Callable[..., Any]

_STREAMS = (AsyncGenerator, AsyncIterator, AsyncIterable)


class Kind(Enum):
    """How a function has to be called."""

    COROUTINE = auto()
    STREAM = auto()
    SYNC = auto()


@dataclass(frozen=True)
class Signature:
    """One input and one output type; several parameters are fields of `schema`."""

    kind: Kind
    name: str
    parameters: tuple[str, ...]
    input_type: Any
    schema: type[BaseModel]
    output_type: Any

    @property
    def packed(self) -> bool:
        """True if the function takes the fields of `schema` and not one value."""
        return len(self.parameters) != 1


def read_signature(fn: AnyFn) -> Signature:
    """The signature of a function, bound method, partial or callable object; WorkflowError if it is not annotated."""
    name = _name(fn)
    hints = _hints(fn, name)
    parameters = inspect.signature(fn).parameters
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise WorkflowError(f"{name}(): *args and **kwargs have no schema", hint="name and annotate each argument")
    missing = [p for p in [*parameters, "return"] if p not in hints]
    if missing:
        raise WorkflowError(f"{name}(): no annotation on {', '.join(missing)}", hint="annotate arguments and return")
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is inspect.Parameter.empty else p.default) for p in parameters.values()
    }
    input_type: Any = hints[next(iter(fields))] if len(fields) == 1 else None
    if isinstance(input_type, type) and get_origin(input_type) is None and issubclass(input_type, BaseModel):
        schema = input_type
    else:
        schema = create_model(f"{_camel(name)}Input", **fields)
    kind = _kind(fn, hints["return"])
    output = _item_type(hints["return"]) if kind is Kind.STREAM else hints["return"]
    return Signature(kind, name, tuple(fields), schema if input_type is None else input_type, schema, output)


def schema_of(output_type: Any, name: str) -> type[BaseModel] | None:
    """A model for an output type: the type itself, or one with the single field `value`; None for no output."""
    if output_type in (None, type(None)):
        return None
    if isinstance(output_type, type) and get_origin(output_type) is None and issubclass(output_type, BaseModel):
        return output_type
    fields: dict[str, Any] = {"value": (output_type, ...)}
    return create_model(f"{_camel(name)}Output", **fields)


def _name(fn: AnyFn) -> str:
    inner = _unwrapped(fn)
    return inner.__name__ if inspect.isroutine(inner) else type(inner).__name__


def _unwrapped(fn: AnyFn) -> AnyFn:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _called(fn: AnyFn) -> AnyFn:
    """The function that runs in the end: of a partial, or of an object that is called."""
    inner = _unwrapped(fn)
    call: AnyFn = inner if inspect.isroutine(inner) else type(inner).__call__
    return call


def _hints(fn: AnyFn, name: str) -> dict[str, Any]:
    try:
        return get_type_hints(_called(fn), include_extras=True)
    except NameError as error:
        raise WorkflowError(f"{name}(): an annotation cannot be resolved: {error}") from error


def _kind(fn: AnyFn, returned: Any) -> Kind:
    call = _called(fn)
    if inspect.isasyncgenfunction(call):
        return Kind.STREAM
    if inspect.iscoroutinefunction(call):
        return Kind.COROUTINE
    # A plain function whose annotation promises a stream makes one when it is called.
    return Kind.STREAM if get_origin(_bare(returned)) in _STREAMS else Kind.SYNC


def _item_type(annotation: Any) -> Any:
    bare = _bare(annotation)
    return get_args(bare)[0] if get_origin(bare) in _STREAMS else annotation


def _bare(annotation: Any) -> Any:
    """The annotation without `Annotated`."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.strip("<>_").split("_")) or "Function"

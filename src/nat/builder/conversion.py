"""Convert a value to the type that a function takes or a caller wants.

In this order: the value already has the type; a registered converter; JSON text for a model; what pydantic's lax mode
accepts ("5" is an int). Otherwise a TypeError with the value and both types. Chat types and text are converted into
each other, so that a workflow for one can be called with the other.
"""

import inspect
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from nat.data_models.api_server import ChatRequest, ChatRequestOrMessage, ChatResponse, ChatResponseChunk
from nat.errors import findings_of
from nat.secrets import excerpt

Converter = Callable[[Any], Any]
"""A function with one annotated argument and an annotated return value."""


class TypeConverter:
    """Converters by source and target type; unknown pairs are passed to `parent`."""

    def __init__(self, converters: Iterable[Converter] = (), parent: "TypeConverter | None" = None) -> None:
        self._converters: list[tuple[Any, Any, Converter]] = []
        self._parent = parent
        for converter in converters:
            self.add_converter(converter)

    def add_converter(self, converter: Converter) -> None:
        """Register a converter under the types that its annotations name."""
        hints = get_type_hints(converter)
        wanted = hints.pop("return", None)
        if wanted is None or len(hints) != 1:
            raise TypeError(f"the converter {converter!r} needs one annotated argument and an annotated return")
        self.add(next(iter(hints.values())), wanted, converter)

    def add(self, source: Any, target: Any, converter: Converter) -> None:
        self._converters.append((source, target, converter))

    def convert(self, value: Any, to_type: Any) -> Any:
        """The value as `to_type`, or TypeError."""
        if has_type(value, to_type):
            return value
        for source, target, converter in self._converters:
            if target == to_type and has_type(value, source):
                return converter(value)
        return _coerced(value, to_type) if self._parent is None else self._parent.convert(value, to_type)

    def try_convert(self, value: Any, to_type: Any) -> Any:
        """The value as `to_type`, or unchanged if it cannot be converted."""
        try:
            return self.convert(value, to_type)
        except TypeError:
            return value


def has_type(value: Any, wanted: Any) -> bool:
    """True if the value is of the type, or of its origin where the type is generic; a truth value is no number."""
    if wanted in (Any, None, inspect.Parameter.empty):
        return True
    checked = get_origin(wanted) or wanted
    if isinstance(value, bool) and checked in (int, float):
        return False
    return isinstance(checked, type) and isinstance(value, checked)


def _coerced(value: Any, to_type: Any) -> Any:
    try:
        if isinstance(value, BaseModel) and to_type is str:
            return value.model_dump_json()
        if isinstance(value, str) and isinstance(to_type, type) and issubclass(to_type, BaseModel):
            return to_type.model_validate_json(value)
        if to_type is str and isinstance(value, int | float):
            return str(value)
        return TypeAdapter(to_type).validate_python(value)
    except ValidationError as error:
        why = f": {'; '.join(map(str, findings_of(error)[:3]))}"
    except PydanticUserError:  # a type that pydantic knows no rules for
        why = ", and no converter is registered"
    seen = f"{excerpt(repr(value), 120)} ({type(value).__name__})"
    raise TypeError(f"{seen} cannot be converted to {getattr(to_type, '__name__', to_type)}{why}")


GLOBAL_CONVERTER = TypeConverter()
GLOBAL_CONVERTER.add(ChatRequest, str, attrgetter("last_user_text"))
GLOBAL_CONVERTER.add(str, ChatRequest, ChatRequest.from_string)
GLOBAL_CONVERTER.add(ChatRequestOrMessage, str, attrgetter("request.last_user_text"))
GLOBAL_CONVERTER.add(str, ChatRequestOrMessage, lambda text: ChatRequestOrMessage(input_message=text))
GLOBAL_CONVERTER.add(ChatRequestOrMessage, ChatRequest, attrgetter("request"))
for each in (ChatResponse, ChatResponseChunk):
    GLOBAL_CONVERTER.add(each, str, attrgetter("text"))
    GLOBAL_CONVERTER.add(str, each, each.from_string)


class GlobalTypeConverter:
    """The converters of the whole process; plug-ins add theirs here."""

    get = staticmethod(lambda: GLOBAL_CONVERTER)
    register_converter = GLOBAL_CONVERTER.add_converter
    convert = GLOBAL_CONVERTER.convert
    try_convert = GLOBAL_CONVERTER.try_convert

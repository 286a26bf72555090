"""Convert a value to the type that a function takes or a caller wants.

In this order: the value already has the type; a registered converter; JSON text for a model; what pydantic's lax mode
accepts ("5" is an int). Otherwise a TypeError with the value and both types. Chat types and text are converted into
each other, so that a workflow for one can be called with the other.
"""

from collections.abc import Callable, Iterable
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from nat.data_models.api_server import Chat, ChatRequest, ChatRequestOrMessage
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
        self._converters.append((next(iter(hints.values())), wanted, converter))

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
    checked = get_origin(wanted) or wanted
    if isinstance(value, bool) and checked in (int, float):
        return False
    return wanted in (Any, None) or (isinstance(checked, type) and isinstance(value, checked))


def _coerced(value: Any, to_type: Any) -> Any:
    try:
        if isinstance(value, ChatRequestOrMessage) and to_type is ChatRequest:
            return value.request
        if isinstance(value, str) and to_type in get_args(Chat):
            return to_type.from_string(value)
        if isinstance(value, BaseModel) and to_type is str:
            return value.text if isinstance(value, Chat) else value.model_dump_json()
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


class GlobalTypeConverter:
    """The converters of the whole process; plug-ins add theirs here."""

    get = staticmethod(lambda: GLOBAL_CONVERTER)
    register_converter = GLOBAL_CONVERTER.add_converter
    convert = GLOBAL_CONVERTER.convert
    try_convert = GLOBAL_CONVERTER.try_convert

import pytest

from nat.builder.conversion import TypeConverter
from nat.utils.type_converter import GlobalTypeConverter


class Opaque:
    """Pydantic knows no rules for it."""


def test_own_converters_come_before_the_parents():
    """A function's converter wins over the process-wide one; the parent is asked for the rest."""

    def parents(value: int) -> str:
        return "parent"

    def own(value: int) -> str:
        return "own"

    def floats(value: float) -> str:
        return "float"

    parent = TypeConverter([parents, floats])
    assert TypeConverter([own], parent=parent).convert(1, str) == "own"
    assert TypeConverter([own], parent=parent).convert(1.5, str) == "float"


def test_no_way_is_a_type_error():
    """A type that nobody converts to is named."""
    with pytest.raises(TypeError, match=r"3 \(int\) is no Opaque, and no converter"):
        TypeConverter().convert(3, Opaque)
    assert TypeConverter().try_convert(3, Opaque) == 3


def test_a_bool_is_no_number():
    """True is not taken for the number 1 without asking, nor silently for text."""
    value = True
    assert TypeConverter().convert(value, str) == "True"
    assert TypeConverter().convert(value, bool) is True


def test_a_converter_needs_annotations():
    """Its types are what it is found by."""
    with pytest.raises(TypeError, match="one annotated argument"):
        TypeConverter([lambda value: value])


def test_the_global_converter_is_one():
    """What a plug-in registers holds for everybody."""

    class Meters(float):
        pass

    def meters(value: str) -> Meters:
        return Meters(value.removesuffix("m"))

    GlobalTypeConverter.register_converter(meters)
    assert GlobalTypeConverter.convert("3m", Meters) == 3
    assert GlobalTypeConverter.get().try_convert("4m", Meters) == 4

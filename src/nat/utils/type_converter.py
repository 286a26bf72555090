"""The import path of plug-ins for converters between types."""

from nat.builder.conversion import Converter, GlobalTypeConverter, TypeConverter

__all__ = ["Converter", "GlobalTypeConverter", "TypeConverter"]

"""Alias for plug-ins: the code is in `nat.builder.conversion`."""

from nat.builder.conversion import Converter, GlobalTypeConverter, TypeConverter

__all__ = ["Converter", "GlobalTypeConverter", "TypeConverter"]

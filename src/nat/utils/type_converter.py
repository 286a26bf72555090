"""Alias for plug-ins: the code is in `nat.builder.conversion`."""

from nat.builder.conversion import Converter as Converter
from nat.builder.conversion import GlobalTypeConverter as GlobalTypeConverter
from nat.builder.conversion import TypeConverter as TypeConverter

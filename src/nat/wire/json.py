"""JSON and text from models and agents: of any depth, and with lone surrogates, which UTF-8 cannot encode."""

import json
import zlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python

T = TypeVar("T")
_SHORT = 512
"""Bytes of JSON that are not worth compressing."""
Several = Annotated[list[T], Field(fail_fast=True)]
"""A list whose validation error names only the first mistake, because the list may be long."""


def without_surrogates(value: Any) -> Any:
    """Write each lone surrogate as its escape, in a string or inside a value; different strings stay different."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, BaseModel):
        return without_surrogates(value.model_dump())
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


def parse_json(text: str) -> Any:
    """Parse JSON of a model or an agent.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or has a number with too many digits; for the latter two
            the standard library raises other errors.

    """
    return from_json(text.encode(errors="surrogatepass"))


def text_or_json(value: Any) -> str:
    """A text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def json_text(record: BaseModel, *, exclude_defaults: bool = False, exclude_unset: bool = False) -> str:
    """The record as JSON; values that JSON does not know become text."""
    try:
        return record.model_dump_json(exclude_defaults=exclude_defaults, exclude_unset=exclude_unset)
    except PydanticSerializationError:
        values = record.model_dump(exclude_unset=exclude_unset)
        plain = to_jsonable_python(without_surrogates(values), fallback=repr)
        return (
            type(record)
            .model_validate(plain)
            .model_dump_json(exclude_defaults=exclude_defaults, exclude_unset=exclude_unset)
        )


def compressed(content: bytes) -> bytes:
    """JSON for a file, by zlib at its fastest level; short JSON stays as it is, since it would gain nothing."""
    return zlib.compress(content, 1) if len(content) > _SHORT else content


def decompressed(content: bytes) -> bytes:
    """The JSON that `compressed` was given; none begins with the byte of zlib."""
    return zlib.decompress(content) if content[:1] == b"x" else content

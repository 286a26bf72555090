"""Text as others leave it: with halves of surrogate pairs, which UTF-8 has no bytes for, or as JSON of any depth."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python


def without_surrogates(value: Any) -> Any:
    """The same with each half of a pair written as its escape, so that what was different stays different."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, BaseModel):
        return without_surrogates(value.model_dump())
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


def parsed(text: str) -> Any:
    """What JSON of a model or an agent says.

    Raises:
        ValueError: it is none; or it is nested too deeply or has a number with too many digits, for which the
            standard library has errors of other kinds.

    """
    return from_json(text.encode(errors="surrogatepass"))


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

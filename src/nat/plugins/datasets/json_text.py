"""Parse JSON without losing or inventing a value."""

import json
import math
from typing import Any


def parse_json(text: str) -> Any:
    """The value of `text`; ValueError for what JSON does not have (NaN) or a float cannot hold (1e999)."""
    return json.loads(text, parse_float=_finite, parse_constant=_refuse)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text} is too large; write it as text")
    return number


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON; write null or leave the key out")


def describe(error: ValueError) -> str:
    """What is wrong, and the column where the JSON breaks."""
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return str(error)


def type_name(value: object) -> str:
    """How JSON calls the type of a parsed value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

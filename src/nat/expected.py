"""What a value should have been, in words for people who do not know pydantic. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:  # `nat --help` imports this module, and no pydantic
    from pydantic.fields import FieldInfo

WHOLE, NUMBER, MAPPING, LIST = "a whole number", "a number", "a mapping of keys to values", "a list"

_KINDS = {
    "int": WHOLE,
    "float": NUMBER,
    "finite_number": "a finite number",
    "bool": "true or false",
    "string_type": "a text",
    "string_unicode": "a text",
    "path_type": "a path",
    "list": LIST,
    "tuple": LIST,
    "set": LIST,
    "frozen_set": LIST,
    "dict": MAPPING,
    "mapping": MAPPING,
    "model": MAPPING,
    "dataclass": MAPPING,
}
"""By the beginning of an error's type."""
_KEYS = {"missing": "this key is required", "extra_forbidden": "unknown key"}
_LIMITS = {
    "greater_than_equal": ("ge", "{} of at least {}"),
    "greater_than": ("gt", "{} above {}"),
    "less_than_equal": ("le", "{} of at most {}"),
    "less_than": ("lt", "{} below {}"),
}
_WORDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
_ANY = 1e15
"""A bound of this size only keeps infinity out."""
_SIZES = {
    "too_short": "at least {min_length} in the list",
    "too_long": "at most {max_length} in the list",
    "string_too_short": "a text of at least {min_length} characters",
    "string_too_long": "a text of at most {max_length} characters",
}
_PATTERNS = {
    "^https?://": "a URL that begins with http:// or https://",
    "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$": "a name of at most 32 letters, digits, '_' and '-'",
}
"""Patterns of our fields, by their beginning."""


def expected(error: Mapping[str, Any], field: "FieldInfo | None" = None) -> str:
    """`expected a whole number of at least 1`, for one of pydantic's errors; the text of a validator as it is.

    The bounds are those of the field, if it is given, else the one that was crossed.
    """
    if error["type"] in {"value_error", "assertion_error"}:
        return re.sub(r"^(Value|Assertion) error, ", "", error["msg"])
    if error["type"] in _KEYS:
        return _KEYS[error["type"]]
    wanted = _wanted(error, field)
    return error["msg"] if wanted is None else f"expected {wanted}"


def _wanted(error: Mapping[str, Any], field: "FieldInfo | None") -> str | None:
    kind, context = error["type"], error.get("ctx", {})
    found = next((words for beginning, words in _KINDS.items() if kind.startswith(beginning)), None)
    if kind in _LIMITS or found in {WHOLE, NUMBER}:
        return _numbers(field) or found or _limit(kind, context)
    if kind in {"literal_error", "enum"}:
        found = str(context["expected"]).replace("True", "true").replace("False", "false")
    elif kind == "string_pattern_mismatch":
        found = _of_pattern(context["pattern"])
    elif kind in _SIZES:
        found = _SIZES[kind].format(**context)
    elif found is None and error["msg"].startswith("Input should be "):
        found = str(error["msg"]).removeprefix("Input should be ")
    return found


def _limit(kind: str, context: Mapping[str, Any]) -> str:
    key, text = _LIMITS[kind]
    return text.format(NUMBER, f"{context[key]:g}")


def _of_pattern(pattern: str) -> str:
    known = (words for beginning, words in _PATTERNS.items() if pattern.startswith(beginning))
    return next(known, f"a text that matches {pattern}")


def _numbers(field: "FieldInfo | None") -> str | None:
    """The numbers that a field takes; None if it does not say."""
    if field is None:
        return None
    parts = [*field.metadata, *_parts(field.annotation)]
    kinds = {part for part in parts if part in (int, float)}
    if not kinds:
        return None
    noun = WHOLE if kinds == {int} else NUMBER
    limits = {kind: getattr(p, kind) for p in parts for kind in _WORDS if type(p).__name__.lower() == kind}
    limits = {kind: int(limit) if limit == int(limit) else limit for kind, limit in limits.items() if limit < _ANY}
    if limits.keys() == {"ge", "le"}:
        return f"{noun} from {limits['ge']} to {limits['le']}"
    return " ".join([noun, " and ".join(f"{_WORDS[kind]} {limit}" for kind, limit in limits.items())]).strip()


def _parts(annotation: Any) -> Iterator[Any]:
    """The types of an annotation, and what is said about them."""
    yield annotation
    yield from getattr(annotation, "__metadata__", ())
    for each in get_args(annotation):
        yield from getattr(each, "metadata", ())
        yield from _parts(each)


_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_SEPARATED = re.compile(r"\d{1,3}(?:[,_ ]\d{3})+")
_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?) ?[A-Za-z]+")


def number_advice(text: str) -> str:
    """How to write a number that was written for people, with a leading `; `; empty if it is none."""
    if found := _PERCENT.fullmatch(text):
        return f"; write {float(found[1]) / 100:g}"
    if _SEPARATED.fullmatch(text):
        return f"; write {re.sub('[,_ ]', '', text)}"
    if found := _WITH_UNIT.fullmatch(text):
        return f"; write {found[1]} without a unit"
    return ""

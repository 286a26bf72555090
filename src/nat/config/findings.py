"""Collect everything that is wrong with a configuration, and raise it once."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nat.config.secrets import names_secret, redacted
from nat.errors import LIST, MAPPING, ConfigError, did_you_mean, expected, one_of
from nat.secrets import REDACTED, excerpt

KeyPath = tuple[str | int, ...]
"""The keys and indices that lead to a value."""
_KEY = re.compile(r"_?[a-z]\w*")
"""A key, in contrast to the name that pydantic gives to a part of a union."""
_MAX_KEYS = 12
_OF_THE_TOOLKIT = {
    **dict.fromkeys(("do_auto_retry", "retry_on_status_codes", "retry_on_errors"), "failed requests are sent again"),
    **dict.fromkeys(("optimizable_params", "search_space"), "this project has no optimizer"),
}
"""Options of all LLMs of the toolkit, and why they are none here."""


class Findings:
    """Errors by YAML path; loading continues after each, so that the user sees all of them."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, path: KeyPath, message: str) -> None:
        found = f"{dotted(path)}: {message}"
        if found not in self._found:
            self._found.append(found)

    def add_unknown_key(self, path: KeyPath, known: set[str]) -> None:
        """Report a key; `known` are the keys that are allowed there."""
        keys = known - {"type", "reward"}
        hint, why = _similar(path, keys), _OF_THE_TOOLKIT.get(str(path[-1]))
        if path[0] == "llms" and why is not None:
            hint = f" Leave it out: {why}."
        elif keys >= {"base_url", "extra_body"}:
            hint += " Put fields that only this server knows under extra_body."
        self.add(path, f"unknown key.{hint}")

    def add_unknown_section(self, key: str, known: Iterable[str]) -> None:
        """Report a key at the top of the file."""
        found = did_you_mean(key, known)
        self.add((key,), f"unknown section.{found or f' Known: {one_of(known)}.'}")

    def add_validation(self, path: KeyPath, error: ValidationError, model: type[BaseModel], raw: Any) -> None:
        """Report pydantic's errors about `raw`, one for each key; `model` has the keys that are allowed."""
        found: dict[KeyPath, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):  # each part of a union has errors, under the part's name
            found.setdefault(tuple(_keys(detail, raw)), []).append(detail)
        misspelt = dict(_misspelt(found))
        for wrong, key in misspelt.items():
            self.add((*path, *wrong), f"unknown key.{did_you_mean(str(wrong[-1]), [key])}")
        told = {*misspelt, *((*wrong[:-1], key) for wrong, key in misspelt.items())}
        for location in [each for each in found if each not in told]:
            self._add_wrong((*path, *location), found[location], model, location)

    def _add_wrong(
        self, here: KeyPath, details: Sequence[ErrorDetails], model: type[BaseModel], location: KeyPath
    ) -> None:
        keys = [part for part in location if isinstance(part, str)]
        owner, kind = _owner(model, keys), details[0]["type"]
        field = None if owner is None or not keys else _field(owner, keys[-1])
        if kind == "extra_forbidden":
            self.add_unknown_key(here, set() if owner is None else known_keys(owner))
        elif kind == "missing":
            told = "" if field is None or field.description is None else " ".join(field.description.split())
            meaning = f" ({re.split('[.;] ', told)[0].rstrip('.')})" if told else ""
            self.add(here, f"this key is required{meaning}")
        else:
            self.add(here, _wrong_value(details, field, here))

    def raise_if_any(self, source: str) -> None:
        if self._found:
            raise ConfigError(self._found, source=source)

    def __bool__(self) -> bool:
        return bool(self._found)


def dotted(path: KeyPath) -> str:
    """`a.b.0` for the keys a, b and the index 0; `(root)` for the whole file."""
    return ".".join(str(part) for part in path) or "(root)"


def known_keys(model: type[BaseModel]) -> set[str]:
    """The keys that a YAML may use for a model's fields."""
    return {key for name, field in model.model_fields.items() for key in (field.serialization_alias or name, name)}


def _owner(model: type[BaseModel], keys: Sequence[str]) -> type[BaseModel] | None:
    """The model that has the last of the keys; None if it is not inside a model."""
    parent: type[BaseModel] | None = model
    for key in keys[:-1]:
        field = None if parent is None else _field(parent, key)
        parent = None if field is None else next(_models(field.annotation), None)
    return parent


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    fields = model.model_fields
    of_alias = (field for field in fields.values() if key in (field.serialization_alias, field.alias))
    return fields.get(str(key)) or next(of_alias, None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def preview(value: Any, *, path: KeyPath = (), length: int = 60) -> str:
    """The beginning of a value for a message; stars if its key names a secret or the value holds one."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return REDACTED if names_secret(path) else excerpt(repr(redacted(value)), length)


def _similar(path: KeyPath, keys: set[str]) -> str:
    """The key that was meant, or all keys unless they are many; with a leading blank."""
    if suggestion := did_you_mean(str(path[-1]), keys):
        return suggestion
    if len(keys) > _MAX_KEYS:
        return " docs/reference/configuration/index.md lists all keys."
    return f" Known keys: {one_of(keys)}." if keys else ""


def _misspelt(found: Mapping[KeyPath, Sequence[ErrorDetails]]) -> Iterator[tuple[KeyPath, str]]:
    """Unknown keys that resemble a required one that is missing beside them: one mistake, not two."""
    missing = [location for location, details in found.items() if details[0]["type"] == "missing"]
    for location, details in found.items():
        beside = [str(key) for *parent, key in missing if tuple(parent) == location[:-1]]
        if details[0]["type"] == "extra_forbidden":
            yield from ((location, key) for key in beside if did_you_mean(str(location[-1]), [key]))


def _keys(detail: ErrorDetails, node: Any) -> Iterator[str | int]:
    for part in detail["loc"]:
        if (isinstance(node, dict) and part in node) or (isinstance(node, list) and isinstance(part, int)):
            node = node[part]  # type: ignore[index] # a key of a mapping, or an index of a list
        elif not isinstance(node, dict) or not _KEY.fullmatch(str(part)):
            continue
        yield part


def _wrong_value(details: Sequence[ErrorDetails], field: FieldInfo | None, path: KeyPath) -> str:
    """What was wanted, what was found, and how to write what was probably meant."""
    value, model = details[0]["input"], next(_models(field.annotation), None) if field is not None else None
    texts = list(dict.fromkeys(expected(dict(detail)) for detail in details))
    text = " or ".join([texts[0], *(each.removeprefix("expected ") for each in texts[1:])])
    if MAPPING in text and model is not None:
        text = text.replace(MAPPING, mapping_of(model))
    seen = preview(value, path=path, length=80)
    if details[0]["type"] == "value_error":
        return text if seen in text or names_secret(path) or isinstance(value, dict) else f"{text}; got {seen}"
    return f"{text}, got {seen}{'' if names_secret(path) else _advice(text, value, model)}"


def _advice(text: str, value: Any, model: type[BaseModel] | None) -> str:
    """How to write what was probably meant, with a leading `; `."""
    is_scalar = isinstance(value, str | int | float)
    if isinstance(value, str) and LIST in text and "mapping" not in text:
        return f"; write [{value}]"
    if text == "expected a text" and is_scalar:
        return "; put it in quotes"
    if model is not None and is_scalar and "mapping" in text:
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        if value is True:
            return "; write {enabled: true}" if "enabled" in model.model_fields else "; write {} for its defaults"
        return f"; write {{{needed[0]}: {value}}}" if len(needed) == 1 else ""
    return ""


def mapping_of(model: type[BaseModel]) -> str:
    """What a model is in a YAML: `a mapping (keys: alpha, rank)`."""
    keys = sorted(known_keys(model) - {"type"})
    return f"a mapping (keys: {', '.join(keys[:_MAX_KEYS])}{', …' if len(keys) > _MAX_KEYS else ''})"

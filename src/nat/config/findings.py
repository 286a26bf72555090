"""Collect everything that is wrong with a configuration, and raise it once."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from nat.config.secrets import names_secret, redacted
from nat.errors import ConfigError, did_you_mean, validation_message
from nat.secrets import REDACTED, excerpt

KeyPath = tuple[str | int, ...]
"""The keys and indices that lead to a value."""


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
        suggestion = did_you_mean(str(path[-1]), keys) or (f" Known keys: {', '.join(sorted(keys))}." if keys else "")
        server = " Put fields that only this server knows under extra_body." if "extra_body" in keys else ""
        self.add(path, f"unknown key.{suggestion}{server}")

    def add_validation(self, path: KeyPath, error: ValidationError, model: type[BaseModel]) -> None:
        """Report each of pydantic's errors under the path of its key; `model` has the keys that are allowed."""
        for detail in error.errors(include_url=False):
            location = tuple(detail["loc"])
            if detail["type"] == "extra_forbidden":
                self.add_unknown_key((*path, *location), _known_keys_at(model, location))
            elif detail["type"] == "missing":
                self.add((*path, *location), "this key is required")
            else:
                message = validation_message(detail["msg"])
                seen = "" if names_secret(location) else _actual_value(detail["input"])
                self.add((*path, *location), f"{message}{seen}")

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


def _known_keys_at(model: type[BaseModel], location: KeyPath) -> set[str]:
    """The keys of the model that contains `location`; empty if it is not inside a model."""
    parent: type[BaseModel] | None = model
    for part in location[:-1]:
        parent = _child_model(parent, part) if parent is not None else None
    return known_keys(parent) if parent is not None else set()


def _child_model(model: type[BaseModel], key: str | int) -> type[BaseModel] | None:
    field = model.model_fields.get(str(key))
    return next(_models(field.annotation), None) if field is not None else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def preview(value: Any, *, path: KeyPath = (), length: int = 60) -> str:
    """The beginning of a value for a message; stars if its key names a secret or the value holds one."""
    return REDACTED if names_secret(path) else excerpt(repr(redacted(value)), length)


def _actual_value(value: Any) -> str:
    """The end of the message with the actual value, if it is a scalar."""
    return f", but it is {preview(value, length=80)}" if isinstance(value, (str, int, float, bool, type(None))) else ""

"""Find the keys that validation dropped; pure.

Most of our models refuse unknown keys themselves. Others do not: those of plug-ins, which are plain pydantic models
or dataclasses, and those that callers may give more than they know. In a YAML, none may drop a key silently.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from nat.config.findings import Path


def ignored_keys(value: Any, raw: Any, path: Path = ()) -> Iterator[tuple[Path, set[str]]]:
    """Each key of `raw`, at any depth, that is not in `value` made from it; with the keys that would be."""
    if isinstance(raw, list) and isinstance(value, list | tuple) and len(raw) == len(value):
        for index, (item, raw_item) in enumerate(zip(value, raw, strict=True)):
            yield from ignored_keys(item, raw_item, (*path, index))
    children = _children(value)
    if not isinstance(raw, dict) or children is None:
        return
    refused = _refused(type(value), raw) if isinstance(value, BaseModel) else raw.keys() - children.keys()
    for key, item in raw.items():
        if key in refused:
            yield (*path, key), set(children)
        elif key in children:
            yield from ignored_keys(children[key], item, (*path, key))


def _children(value: Any) -> dict[str, Any] | None:
    """What is under each key that a YAML may use; None for a value without keys."""
    if isinstance(value, BaseModel):
        known = type(value).model_fields.items()
        return {key: getattr(value, name) for name, field in known for key in (name, *_aliases(field))}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value if isinstance(value, dict) else None


def _aliases(field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    return [a for a in (alias.choices if isinstance(alias, AliasChoices) else [alias]) if isinstance(a, str)]


def _refused(model: type[BaseModel], raw: dict[str, Any]) -> set[str]:
    """The keys that a stricter twin of the model does not take, after its own validators have seen them."""
    if model.model_config.get("extra") in {"allow", "forbid"}:
        return set()  # it keeps unknown keys, or has refused them already
    twin: type[BaseModel] = type(model.__name__, (model,), {"model_config": ConfigDict(extra="forbid")})
    try:
        twin.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return {str(e["loc"][0]) for e in found if e["type"] == "extra_forbidden" and len(e["loc"]) == 1}
    return set()

"""Describe the YAML keys of every component, with types, defaults and descriptions. Pure."""

import inspect
import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import is_typeddict

from nat.registry.catalog import Catalog

INTERNAL = {"type", "reward"}
"""Fields that are not set in a YAML."""


class FieldDescription(BaseModel):
    """One key of a component."""

    name: str
    type: str
    required: bool
    default: Any = None
    description: str = ""


class ComponentDescription(BaseModel):
    """One registered type."""

    section: str
    type: str
    full_type: str
    module: str
    description: str
    fields: list[FieldDescription]


def describe(catalog: Catalog) -> list[ComponentDescription]:
    """Every registered component, by section and name."""
    return [
        ComponentDescription(
            section=str(component.group),
            type=component.local_name,
            full_type=component.full_type,
            module=component.module_name,
            description=inspect.getdoc(component.config_type) or "",
            fields=list(fields_of(component.config_type)),
        )
        for registry in catalog.components.values()
        for component in sorted(registry, key=lambda c: c.local_name)
    ]


def fields_of(model: type[BaseModel], prefix: str = "") -> Iterator[FieldDescription]:
    """The keys of a model; keys of nested models follow with dotted names."""
    for name, field in model.model_fields.items():
        if name in INTERNAL and not prefix:
            continue
        yield _field(f"{prefix}{name}", field)
        for inner in classes_in(field.annotation):
            yield from fields_of(inner, f"{prefix}{name}.")


def type_text(annotation: Any) -> str:
    """An annotation as text: `int | null`, `list[str]`, `'a' | 'b'`."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin in (Union, types.UnionType):
        return " | ".join(type_text(a) for a in arguments)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " | ".join(repr(member.value) for member in annotation)
    if origin is Literal:
        return " | ".join(repr(a) for a in arguments)
    if origin is not None:
        return f"{getattr(origin, '__name__', origin)}[{', '.join(type_text(a) for a in arguments)}]"
    return getattr(annotation, "__name__", str(annotation))


def _field(name: str, field: FieldInfo) -> FieldDescription:
    default = field.get_default(call_default_factory=True, validated_data={})
    return FieldDescription(
        name=name,
        type=type_text(field.annotation),
        required=field.is_required(),
        default=None if default is PydanticUndefined or isinstance(default, BaseModel) else default,
        description=" ".join((field.description or "").split()),
    )


def keys_of(kind: Any) -> dict[str, FieldInfo]:
    """Each key that a YAML may use for a field of a model, a dataclass or a typed mapping; aliases included."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {key: field for name, field in kind.model_fields.items() for key in (name, *_aliases(field))}
    if isinstance(kind, type) and (is_dataclass(kind) or is_typeddict(kind)):
        return {name: FieldInfo.from_annotation(hint) for name, hint in get_type_hints(kind).items()}
    return {}


def classes_in(annotation: Any) -> list[type]:
    """The classes with keys that a value of an annotation may have; not those of its items."""
    if keys_of(annotation):
        return [annotation]
    items = get_origin(annotation) in (dict, list, tuple, set)
    return [kind for each in get_args(annotation) if not items for kind in classes_in(each)]


def _aliases(field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    return [each for each in (alias.choices if isinstance(alias, AliasChoices) else [alias]) if isinstance(each, str)]

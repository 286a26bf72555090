"""Where each key of a configuration may stand, for keys that stand elsewhere. Pure."""

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from nat.config.components import NAMED_SECTIONS, SINGLE_SECTIONS, value_at
from nat.config.findings import KeyPath, known_keys
from nat.config.sources import Tree
from nat.data_models.common import TypedBaseModel
from nat.data_models.config import Config
from nat.registry.catalog import Catalog


def places_of(tree: Tree, catalog: Catalog) -> dict[str, list[KeyPath]]:
    """By key, the paths of the mappings that take it, in the configuration and in the components that it has."""
    found: dict[str, list[KeyPath]] = {}
    models: list[tuple[KeyPath, type[BaseModel]]] = [((), Config), *_components(tree, catalog)]
    for start, model in models:
        for path, inner in _inside(start, model):
            for key in known_keys(inner) - {"type", "_type"}:
                found.setdefault(key, []).append(path)
    return found


def _components(tree: Tree, catalog: Catalog) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    """Each component whose type is registered, with the class of its configuration."""
    sections = ((path, group, value_at(tree, path)) for path, group in NAMED_SECTIONS.items())
    named = {(*p, str(name)): group for p, group, own in sections if isinstance(own, dict) for name in own}
    for path, group in {**named, **SINGLE_SECTIONS}.items():
        name = TypedBaseModel.discriminator(value_at(tree, path))
        if catalog.components[group].has(name):
            yield path, catalog.component(group, str(name)).config_type


def _inside(path: KeyPath, model: type[BaseModel]) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    """The model, and the models of its keys; components are chosen by their type."""
    yield path, model
    for name, field in model.model_fields.items():
        for part in (field.annotation, *_parts_of_union(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel) and not issubclass(part, TypedBaseModel):
                yield from _inside((*path, field.serialization_alias or name), part)


def _parts_of_union(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()

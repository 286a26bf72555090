"""Validate one part of the tree, and report every key that would be dropped silently.

Most of our models refuse unknown keys themselves. Models of plug-ins may not: plain pydantic models, dataclasses, and
models that accept extra keys from code. In a YAML, none of them may drop a key silently.
"""

import logging
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from nat.config.findings import Findings, KeyPath
from nat.config.sources import Tree
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.registry.catalog import Catalog

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], raw: Any, path: KeyPath, texts: Mapping[KeyPath, str], findings: Findings) -> M | None:
    """Validate `raw`, and report what is wrong with it, keys that it would drop included; None if it is not valid.

    `texts` holds the values of environment variables as text: `${KEY}` with the value 12345 is a number in YAML, but a
    field of type text gets the text.
    """
    try:
        value = model.model_validate(raw)
    except ValidationError as error:
        as_text = {
            tuple(e["loc"]): texts[(*path, *e["loc"])]
            for e in error.errors(include_url=False)
            if e["type"] in {"string_type", "path_type"} and (*path, *e["loc"]) in texts
        }
        if as_text:
            return validate(model, _replaced(raw, as_text), path, {}, findings)
        findings.add_validation(path, error, model, raw)
        return None
    for location, known in ignored_keys(value, raw):
        findings.add_unknown_key((*path, *location), known)
    return value


def _replaced(node: Any, texts: Mapping[KeyPath, str], here: KeyPath = ()) -> Any:
    if here in texts:
        return texts[here]
    if isinstance(node, dict):
        return {key: _replaced(item, texts, (*here, key)) for key, item in node.items()}
    if isinstance(node, list):
        return [_replaced(item, texts, (*here, index)) for index, item in enumerate(node)]
    return node


def ignored_keys(value: Any, raw: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, set[str]]]:
    """Each key of `raw`, at any depth, that validation into `value` dropped, with the keys that are known there."""
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
    """The value of each key that a YAML may use; None for a value without keys."""
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
    """The keys that a copy of the model with `extra="forbid"` refuses, after the model's own validators ran."""
    if model.model_config.get("extra") in {"allow", "forbid"}:
        return set()  # it keeps unknown keys, or has refused them already
    config = ConfigDict(extra="forbid", use_attribute_docstrings=False)  # to read them from the source takes long
    strict: type[BaseModel] = type(model.__name__, (model,), {"model_config": config})
    try:
        strict.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return {str(e["loc"][0]) for e in found if e["type"] == "extra_forbidden" and len(e["loc"]) == 1}
    return set()


UNSUPPORTED_SECTIONS = {
    "embedders": "embedders",
    "memory": "memory stores",
    "object_stores": "object stores",
    "retrievers": "retrievers",
    "authentication": "authentication providers",
    "middleware": "middleware",
    "function_groups": "function groups",
    "optimizer": "the optimizer",
}

WITHOUT_EFFECT = (
    ("general", "use_uvloop"),
    ("general", "front_end"),
    ("eval", "general", "workflow_alias"),
    ("eval", "general", "profiler"),
    ("eval", "general", "validate_llm_endpoints"),
)
"""Keys that are accepted with a warning: they do not concern a finetuning run."""


def drop_unsupported(tree: Tree, findings: Findings, catalog: Catalog) -> Tree:
    """Remove keys without effect, with a warning; a section whose components cannot be built is a finding.

    Of `general.telemetry`, exporters of registered types stay.
    """
    kept = deepcopy(tree)
    for section, what in UNSUPPORTED_SECTIONS.items():
        if kept.pop(section, None):
            findings.add(
                (section,),
                f"{what} are not part of this project; remove the section, or train in the toolkit's environment: "
                "docs/from/nat.md",
            )
    for path in WITHOUT_EFFECT:
        _drop(kept, *path)
    telemetry = _inside(kept, "general", "telemetry")
    exporters = _inside(kept, "general", "telemetry", "tracing") or {}
    known = catalog.components[ComponentGroup.EVAL_CALLBACKS]
    unknown = [name for name, raw in exporters.items() if not known.has(TypedBaseModel.discriminator(raw))]
    if telemetry != {"tracing": {}} and len(unknown) == len(exporters):
        _drop(kept, "general", "telemetry")
        return kept
    others = [("tracing", name) for name in unknown] + [(key,) for key in telemetry or {} if key != "tracing"]
    for other in others:
        _drop(kept, "general", "telemetry", *other)
    return kept


def _inside(tree: Tree, *path: str) -> Tree | None:
    """The mapping at a path; None if there is none."""
    node: Any = tree
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else None


def _drop(tree: Tree, *path: str) -> None:
    if (node := _inside(tree, *path[:-1])) is not None and path[-1] in node:
        logger.warning("%s has no effect here", ".".join(path))
        del node[path[-1]]

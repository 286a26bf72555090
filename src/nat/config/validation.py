"""Validate one part of the tree, and report every key that would be dropped silently.

Most of our models refuse unknown keys themselves. Models of plug-ins may not: plain pydantic models, dataclasses, and
models that accept extra keys from code. In a YAML, none of them may drop a key silently.
"""

import logging
from collections.abc import Iterator, Mapping
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
    """Validate `raw`; with wrong keys, report them and validate the rest, so that later checks still find their errors.

    Returns None if the rest is invalid too.

    `texts` holds the values of environment variables as text: `${KEY}` with the value 12345 is a number in YAML, but a
    field of type text gets the text.
    """
    try:
        return _whole(model, raw, path, findings)
    except ValidationError as error:
        as_text = {
            tuple(e["loc"]): texts[(*path, *e["loc"])]
            for e in error.errors(include_url=False)
            if e["type"] in {"string_type", "path_type"} and (*path, *e["loc"]) in texts
        }
        if as_text:
            return validate(model, _replaced(raw, as_text), path, {}, findings)
        findings.add_validation(path, error, model, raw)
        wrong = {tuple(e["loc"]) for e in error.errors(include_url=False)}
        return _remainder(model, _without(raw, wrong), path, findings) if () not in wrong else None


def _whole(model: type[M], raw: Any, path: KeyPath, findings: Findings) -> M:
    value = model.model_validate(raw)
    for location, known in ignored_keys(value, raw):
        findings.add_unknown_key((*path, *location), known)
    return value


def _remainder(model: type[M], raw: Any, path: KeyPath, findings: Findings) -> M | None:
    try:
        return _whole(model, raw, path, findings)
    except ValidationError as error:
        # Validators of the whole model run only once its fields are valid.
        if all(e["loc"] == () for e in error.errors(include_url=False)):
            findings.add_validation(path, error, model, raw)
        return None


def _without(node: Any, wrong: set[KeyPath], here: KeyPath = ()) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: _without(item, wrong, (*here, key)) for key, item in node.items() if (*here, key) not in wrong}


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
    """Remove keys without effect, with a warning; a section whose components cannot be built is a finding."""
    kept = dict(tree)
    for section, what in UNSUPPORTED_SECTIONS.items():
        if kept.pop(section, None):
            findings.add(
                (section,),
                f"{what} are not part of this project; remove the section, or train in the toolkit's environment: "
                "docs/from/nat.md",
            )
    for path in WITHOUT_EFFECT:
        kept = _dropped(kept, path, ".".join(path))
    return _known_exporters_only(kept, catalog)


def _known_exporters_only(tree: Tree, catalog: Catalog) -> Tree:
    """Of `general.telemetry` keep the types that are registered here; the others have no effect."""
    general = tree.get("general")
    telemetry = general.get("telemetry") if isinstance(general, dict) else None
    tracing = telemetry.get("tracing") if isinstance(telemetry, dict) else None
    if not isinstance(general, dict) or telemetry == {"tracing": {}}:
        return tree
    known = catalog.components[ComponentGroup.EVAL_CALLBACKS]
    exporters = tracing if isinstance(tracing, dict) else {}
    usable = {name: raw for name, raw in exporters.items() if known.has(TypedBaseModel.discriminator(raw))}
    if not usable or not isinstance(telemetry, dict):
        return _dropped(tree, ("general", "telemetry"), "general.telemetry")
    dropped = [key for key in telemetry if key != "tracing"] + [f"tracing.{n}" for n in exporters if n not in usable]
    for key in dropped:
        logger.warning("general.telemetry.%s has no effect here", key)
    return {**tree, "general": {**general, "telemetry": {"tracing": usable}}}


def _dropped(node: Tree, path: tuple[str, ...], whole: str) -> Tree:
    key, rest = path[0], path[1:]
    if key not in node:
        return node
    if not rest:
        logger.warning("%s has no effect here", whole)
        return {k: v for k, v in node.items() if k != key}
    child = node[key]
    return {**node, key: _dropped(child, rest, whole)} if isinstance(child, dict) else node

"""Choose the class of each component by its `_type`, and check that every reference names an existing component."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from nat.config.findings import Findings, KeyPath, preview
from nat.config.sources import Tree
from nat.config.validation import validate
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup, ComponentRef, TrainedLLMRef, UntrainedLLMRef
from nat.data_models.config import Config
from nat.errors import RegistryError, did_you_mean, one_of
from nat.registry.catalog import Catalog

NAMED_SECTIONS: dict[KeyPath, ComponentGroup] = {
    ("llms",): ComponentGroup.LLMS,
    ("functions",): ComponentGroup.FUNCTIONS,
    ("ttc_strategies",): ComponentGroup.TTC_STRATEGIES,
    ("eval", "evaluators"): ComponentGroup.EVALUATORS,
    ("general", "telemetry", "tracing"): ComponentGroup.EVAL_CALLBACKS,
    ("trajectory_builders",): ComponentGroup.TRAJECTORY_BUILDERS,
    ("trainer_adapters",): ComponentGroup.TRAINER_ADAPTERS,
    ("trainers",): ComponentGroup.TRAINERS,
    ("finetuning", "trackers"): ComponentGroup.TRACKERS,
}
"""Mappings from a name to a component."""

SINGLE_SECTIONS: dict[KeyPath, ComponentGroup] = {
    ("workflow",): ComponentGroup.FUNCTIONS,
    ("eval", "general", "dataset"): ComponentGroup.DATASETS,
}
"""Keys with exactly one component."""


@dataclass(frozen=True)
class ComponentParser:
    """Turns raw components into configs of registered classes, and reports what is wrong."""

    catalog: Catalog
    texts: Mapping[KeyPath, str]
    findings: Findings
    written: Tree = field(default_factory=dict)
    """The file, without overrides."""
    imports_failed: bool = False
    """True if the components of a file or module are missing; types that only it may have are not reported."""

    def parse_all(self, tree: Tree) -> Tree:
        """Replace each component by its config; a wrong one is reported and left out."""
        for path, group in NAMED_SECTIONS.items():
            tree = _put(tree, path, self._section(value_at(tree, path), path, group))
        for path, group in SINGLE_SECTIONS.items():
            raw = value_at(tree, path)
            tree = _put(tree, path, None if raw is None else self._component(raw, path, group))
        return tree

    def _section(self, raw: Any, path: KeyPath, group: ComponentGroup) -> dict[str, TypedBaseModel] | None:
        if raw is None:
            return None
        if not isinstance(raw, dict):
            wanted = "a mapping from names to components, such as {NAME: {_type: …}}"
            self.findings.add(path, f"expected {wanted}, got {preview(raw, path=path)}")
            return None
        parsed = {str(name): self._component(component, (*path, name), group) for name, component in raw.items()}
        return {name: config for name, config in parsed.items() if config is not None}

    def _component(self, raw: Any, path: KeyPath, group: ComponentGroup) -> TypedBaseModel | None:
        if isinstance(raw, TypedBaseModel):
            return raw
        if not isinstance(raw, dict):
            known = self.catalog.components[group]
            given = isinstance(raw, str) and known.has(raw)
            advice = f"write {{_type: {raw}}}" if given else f"the types are {one_of(known.names())}"
            seen = f"expected a mapping with the key _type, got {preview(raw, path=path)}; {advice}"
            self.findings.add(path, seen)
            return None
        type_name = TypedBaseModel.discriminator(raw)
        if type_name is None:
            self._add_untyped(raw, path, group)
            return None
        try:
            config_type = self.catalog.component(group, type_name).config_type
        except RegistryError as error:
            if not self.imports_failed or did_you_mean(type_name, self.catalog.components[group].names()):
                self.findings.add((*path, "_type"), error.in_line)
            return None
        return validate(config_type, raw, path, self.texts, self.findings)

    def _add_untyped(self, raw: Tree, path: KeyPath, group: ComponentGroup) -> None:
        """Report a component without `_type`; one that only an override names is a typo in its name."""
        known, section = one_of(self.catalog.components[group].names()), value_at(self.written, path[:-1])
        if isinstance(section, dict) and path[-1] not in section and path[:-1] in NAMED_SECTIONS:
            names = _names(section)
            text = f"there is no '{path[-1]}' in the file.{did_you_mean(str(path[-1]), names)} There: {one_of(names)}."
            self.findings.add(path, f"{text} To add one, set its _type, too.")
        elif "_type" in raw:
            wanted = f"expected the name of a type, got {preview(raw['_type'])}"
            self.findings.add((*path, "_type"), f"{wanted}; registered: {known}")
        else:
            self.findings.add((*path, "_type"), f"this key is required. Registered: {known}")


def value_at(tree: Any, path: KeyPath) -> Any:
    """The value at a path, None if there is none."""
    for key in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def _put(tree: Tree, path: KeyPath, value: Any) -> Tree:
    """A copy of the tree with `value` at a path; None removes the key."""
    key, rest = str(path[0]), path[1:]
    if rest:
        child = tree.get(key)
        return {**tree, key: _put(child, rest, value)} if isinstance(child, dict) else tree
    return {k: v for k, v in tree.items() if k != key} if value is None else {**tree, key: value}


def check_references(raw: Tree, parsed: Tree, findings: Findings) -> None:
    """Report references to names that no section has; `raw` includes components that failed to parse."""
    names = {group: _names(value_at(raw, path)) for path, group in NAMED_SECTIONS.items()}
    unreadable = {group for path, group in NAMED_SECTIONS.items() if not _readable(raw, path)}
    for path, ref in _references(parsed, ()):
        if ref.component_group in unreadable:
            continue
        known = names.get(ref.component_group)
        if known is None:
            findings.add(path, f"'{ref}' names one of {ref.component_group}, which are not part of this project")
        elif ref not in known:
            findings.add(
                path,
                f"'{ref}' is not under {ref.component_group}.{did_you_mean(ref, known)} There: {one_of(known)}.",
            )


def _names(section: Any) -> set[str]:
    return {str(name) for name in section} if isinstance(section, dict) else set()


def _readable(tree: Any, path: KeyPath) -> bool:
    """False if something on the path is no mapping, which is an error of its own."""
    return tree is None or (isinstance(tree, dict) and (not path or _readable(tree.get(path[0]), path[1:])))


def references_of(config: BaseModel) -> list[ComponentRef]:
    """Every reference inside one component's config."""
    return [ref for _, ref in _references(config, ())]


def trained_llms(adapters: Mapping[str, BaseModel], name: str) -> set[str]:
    """The LLMs that a trainer adapter's config refers to, or the adapters in it; without those that it only asks."""
    refs = references_of(adapters[name]) if name in adapters else []
    own = {str(r) for r in refs if r.component_group is ComponentGroup.LLMS and not isinstance(r, UntrainedLLMRef)}
    inner = {str(r) for r in refs if r.component_group is ComponentGroup.TRAINER_ADAPTERS} - {name}
    return own.union(*(trained_llms(adapters, each) for each in inner))


def judges_of(evaluator: BaseModel) -> set[str]:
    """The LLMs that an evaluator's config refers to, without those that it may ask while they are trained."""
    refs = references_of(evaluator)
    return {str(r) for r in refs if r.component_group is ComponentGroup.LLMS and not isinstance(r, TrainedLLMRef)}


def _references(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, ComponentRef]]:
    if isinstance(value, ComponentRef):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _references(getattr(value, name), (*path, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _references(item, (*path, key))
    elif isinstance(value, (list, tuple, set)):
        for index, item in enumerate(value):
            yield from _references(item, (*path, index))


def named_components(config: Config) -> Iterator[tuple[ComponentGroup, str, TypedBaseModel]]:
    """Group, name and config of every named component, in the order of the sections."""
    for path, group in NAMED_SECTIONS.items():
        section: Any = config
        for key in path:
            section = getattr(section, str(key))
        for name, component in section.items():
            yield group, name, component

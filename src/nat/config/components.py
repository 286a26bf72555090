"""Choose each component's class by its `_type`, and validate it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nat.config.files import Tree
from nat.config.findings import Findings, Path, shown
from nat.config.validation import validated
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.errors import RegistryError
from nat.registry.catalog import Catalog
from nat.registry.suggest import one_of

NAMED_SECTIONS: dict[Path, ComponentGroup] = {
    ("llms",): ComponentGroup.LLMS,
    ("functions",): ComponentGroup.FUNCTIONS,
    ("ttc_strategies",): ComponentGroup.TTC_STRATEGIES,
    ("eval", "evaluators"): ComponentGroup.EVALUATORS,
    ("trajectory_builders",): ComponentGroup.TRAJECTORY_BUILDERS,
    ("trainer_adapters",): ComponentGroup.TRAINER_ADAPTERS,
    ("trainers",): ComponentGroup.TRAINERS,
}
"""Mappings from a name to a component."""

SINGLE_SECTIONS: dict[Path, ComponentGroup] = {
    ("workflow",): ComponentGroup.FUNCTIONS,
    ("eval", "general", "dataset"): ComponentGroup.DATASETS,
}
"""Places of exactly one component."""


@dataclass(frozen=True)
class ComponentParser:
    """Knows the registered classes, the texts of variables, and where to report what is wrong."""

    catalog: Catalog
    texts: Mapping[Path, str]
    findings: Findings

    def parse_all(self, tree: Tree) -> Tree:
        """The tree with each component replaced by its config; one that is wrong is a finding and left out."""
        for path, group in NAMED_SECTIONS.items():
            tree = _put(tree, path, self._section(value_at(tree, path), path, group))
        for path, group in SINGLE_SECTIONS.items():
            raw = value_at(tree, path)
            tree = _put(tree, path, None if raw is None else self._component(raw, path, group))
        return tree

    def _section(self, raw: Any, path: Path, group: ComponentGroup) -> dict[str, TypedBaseModel] | None:
        if raw is None:
            return None
        if not isinstance(raw, dict):
            self.findings.add(path, f"a mapping from names to components is wanted, but it is {shown(raw, path=path)}")
            return None
        parsed = {str(name): self._component(component, (*path, name), group) for name, component in raw.items()}
        return {name: config for name, config in parsed.items() if config is not None}

    def _component(self, raw: Any, path: Path, group: ComponentGroup) -> TypedBaseModel | None:
        if isinstance(raw, TypedBaseModel):
            return raw
        if not isinstance(raw, dict):
            self.findings.add(path, f"a mapping with the key _type is wanted, but it is {shown(raw, path=path)}")
            return None
        type_name = TypedBaseModel.discriminator(raw)
        if type_name is None:
            known = one_of(self.catalog.components[group].names())
            self.findings.add((*path, "_type"), f"this key is required. Registered: {known}")
            return None
        try:
            config_type = self.catalog.component(group, type_name).config_type
        except RegistryError as error:
            message = error.message if error.hint is None else f"{error.message}; {error.hint}"
            self.findings.add((*path, "_type"), message)
            return None
        return validated(config_type, raw, path, self.texts, self.findings)


def value_at(tree: Any, path: Path) -> Any:
    """What stands at a path, None if nothing does."""
    for key in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(key)
    return tree


def _put(tree: Tree, path: Path, value: Any) -> Tree:
    """The tree with another value at a path; None removes the key."""
    key, rest = str(path[0]), path[1:]
    if rest:
        child = tree.get(key)
        return {**tree, key: _put(child, rest, value)} if isinstance(child, dict) else tree
    return {k: v for k, v in tree.items() if k != key} if value is None else {**tree, key: value}

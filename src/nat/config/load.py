"""Load a configuration: file, overrides, environment, components, references, in this order."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from nat.config.components import ComponentParser
from nat.config.environment import fill_in
from nat.config.files import Tree, read_tree
from nat.config.findings import Findings, shown
from nat.config.findings import Path as Pointer
from nat.config.overrides import Override, apply_overrides
from nat.config.references import check_references
from nat.config.secrets import environment_secrets, secrets_in
from nat.config.unsupported import drop_unsupported
from nat.config.validation import validated
from nat.data_models.config import Config
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components
from nat.registry.suggest import did_you_mean, one_of
from nat.secrets import known_secrets


def load_config(
    path: Path | str, overrides: Sequence[Override] = (), *, environ: Mapping[str, str] | None = None
) -> Config:
    """Read a YAML file; everything that is wrong with it is raised at once as a ConfigError.

    Plug-ins are discovered first. Overrides may use variables of the environment too.
    """
    return parse_config(read_tree(Path(path)), overrides, source=str(path), environ=environ)


def parse_config(
    tree: Tree,
    overrides: Sequence[Override] = (),
    *,
    source: str = "configuration",
    environ: Mapping[str, str] | None = None,
) -> Config:
    """The Config that a tree of plain values stands for; `source` names it in the error."""
    discover_components()
    findings = Findings()
    environ = os.environ if environ is None else environ
    filled = fill_in(apply_overrides(tree, overrides, findings), environ, findings)
    known_secrets.remember({*filled.secrets, *environment_secrets(environ), *secrets_in(filled.tree)})
    raw = drop_unsupported(filled.tree, findings)
    parsed = ComponentParser(current_catalog(), filled.texts, findings).parse_all(raw)
    sections = _sections(parsed, filled.texts, findings)
    check_references(raw, sections, findings)
    findings.raise_if_any(source)
    return Config(**sections)


def _sections(tree: Tree, texts: Mapping[Pointer, str], findings: Findings) -> dict[str, Any]:
    """Validate each top-level section on its own, so that one wrong section does not hide the others."""
    known = Config.model_fields
    sections: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in known:
            findings.add((key,), f"unknown section.{did_you_mean(str(key), known)} Known: {one_of(known)}.")
        elif isinstance(value, dict) and (model := _model_of(key)) is not None:
            section = validated(model, value, (key,), texts, findings)
            if section is not None:
                sections[key] = section
        elif value is not None and _model_of(key) is not None and not isinstance(value, BaseModel):
            findings.add((key,), f"a mapping is wanted, but it is {shown(value, path=(key,))}")
        elif value is not None:
            sections[key] = value
    return sections


def _model_of(section: str) -> type[BaseModel] | None:
    """The class of a section that is no mapping of components."""
    annotation: Any = Config.model_fields[section].annotation
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return None

"""Load a configuration: file, overrides, environment, components, references, in this order; and dump it as YAML."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from nat.config.components import ComponentParser, check_references
from nat.config.defaults import with_defaults
from nat.config.findings import Findings, KeyPath, mapping_of, preview
from nat.config.secrets import environment_secrets, redacted, secrets_in
from nat.config.sources import Override, Tree, apply_overrides, expand_variables, format_yaml, parse_yaml, read_tree
from nat.config.validation import drop_unsupported, validate
from nat.data_models.config import Config
from nat.data_models.function import EmptyFunctionConfig
from nat.errors import ConfigError, RegistryError, one_of
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.secrets import REDACTED, known_secrets


def load_config(
    path: Path | str, overrides: Sequence[Override] = (), *, environ: Mapping[str, str] | None = None
) -> Config:
    """Read a YAML file; a ConfigError lists everything that is wrong with it.

    Plug-ins are discovered first. Overrides may contain environment variables too.
    """
    source = f"{path} with the -o options" if overrides else str(path)
    tree = read_tree(Path(path))
    if not tree and not overrides:
        text = "the file is empty; wanted are sections such as `llms:` and `workflow:`"
        raise ConfigError([f"{text} (all: {one_of(Config.model_fields)})"], source=source)
    return parse_config(tree, overrides, source=source, environ=environ)


def parse_config(
    tree: Tree,
    overrides: Sequence[Override] = (),
    *,
    source: str = "configuration",
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Turn a tree of plain values into a Config; `source` names the tree in errors."""
    discover_components()
    findings = Findings()
    environ = os.environ if environ is None else environ
    filled = expand_variables(apply_overrides(tree, overrides, findings), environ, findings)
    known_secrets.remember({*filled.secrets, *environment_secrets(environ), *secrets_in(filled.tree)})
    imports_failed = not _import(filled.tree.get("imports"), findings)
    raw = with_defaults(drop_unsupported(filled.tree, findings, current_catalog()), current_catalog())
    parsed = ComponentParser(current_catalog(), filled.texts, findings, tree, imports_failed).parse_all(raw)
    sections = _sections(parsed, filled.texts, findings)
    check_references(raw, sections, findings)
    findings.raise_if_any(source)
    return Config(**sections)


def _import(names: Any, findings: Findings) -> bool:
    """Import what the configuration names, before its components are looked up; False if one cannot be imported."""
    if not isinstance(names, list | None):
        findings.add(("imports",), f"expected a list of Python files and modules, got {preview(names)}")
        return False
    found = True
    for index, name in enumerate(names or ()):
        try:
            import_components(str(name))
        except RegistryError as error:
            findings.add(("imports", index), error.in_line)
            found = False
    return found


def _sections(tree: Tree, texts: Mapping[KeyPath, str], findings: Findings) -> dict[str, Any]:
    """Validate each top-level section on its own, so that one wrong section does not hide the others."""
    known = Config.model_fields
    sections: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in known:
            findings.add_unknown_section(str(key), known)
        elif isinstance(value, dict) and (model := _model_of(key)) is not None:
            section = validate(model, value, (key,), texts, findings)
            if section is not None:
                sections[key] = section
        elif value is not None and (model := _model_of(key)) is not None and not isinstance(value, BaseModel):
            findings.add((key,), f"expected {mapping_of(model)}, got {preview(value, path=(key,))}")
        elif value is not None:
            sections[key] = value
    return sections


def _model_of(section: str) -> type[BaseModel] | None:
    """The model of a section; None for a mapping of components."""
    annotation: Any = Config.model_fields[section].annotation
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return None


def dump_resolved(config: Config, *, only_given: bool = False) -> str:
    """The whole configuration as YAML; secrets become stars here, and in everything written later.

    `only_given` leaves out the defaults of fields, but not components that follow from others.
    """
    known_secrets.remember(secrets_in(config.model_dump(by_alias=True)))
    visible = config
    given = config.finetuning.run_configuration
    if given is not None and given.override:
        given = given.model_copy(update={"override": tuple(map(_redacted_override, given.override))})
        finetuning = config.finetuning.model_copy(update={"run_configuration": given})
        visible = config.model_copy(update={"finetuning": finetuning})
    without = {"workflow"} if isinstance(config.workflow, EmptyFunctionConfig) else None
    tree = visible.model_dump(mode="json", by_alias=True, exclude=without, exclude_unset=only_given, fallback=str)
    return format_yaml(known_secrets.redact_tree(redacted(tree)))


def _redacted_override(override: Override) -> Override:
    """The override, with stars for a value that is or contains a secret."""
    key, text = override
    value: Any = text
    with suppress(yaml.YAMLError):
        value = parse_yaml(text)
    for part in reversed(key.split(".")):
        value = {part: value}
    return (key, text if redacted(value) == value else REDACTED)

"""Load a configuration: file, overrides, environment, components, references, in this order; and dump it as YAML."""

import logging
import os
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nat.config.components import NAMED_SECTIONS, chooser, names_in, value_at
from nat.config.defaults import with_defaults
from nat.config.findings import (
    UNKNOWN_KEY,
    UNSUPPORTED_SECTIONS,
    KeyPath,
    Tree,
    dotted,
    findings_in,
    keeps_unknown_keys,
)
from nat.config.secrets import environment_secrets, names_secret, redacted, secrets_in
from nat.config.sources import Override, apply_overrides, expand_variables, format_yaml, read_tree
from nat.data_models.common import Loading, TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.function import EmptyFunctionConfig
from nat.errors import ConfigError, RegistryError, did_you_mean, one_of
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.secrets import REDACTED, known_secrets

logger = logging.getLogger(__name__)

WITHOUT_EFFECT: tuple[KeyPath, ...] = (
    ("general", "use_uvloop"),
    ("general", "front_end"),
    ("eval", "general", "workflow_alias"),
    ("eval", "general", "profiler"),
    ("eval", "general", "validate_llm_endpoints"),
)
"""Keys that are accepted with a warning: they do not concern a finetuning run."""


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
    findings: list[str] = []
    environ = os.environ if environ is None else environ
    filled = expand_variables(apply_overrides(tree, overrides, findings), environ, findings)
    known_secrets.remember({*environment_secrets(environ), *secrets_in(filled.tree)})
    imports_failed = not _import(filled.tree.get("imports"), findings)
    complete = with_defaults(_with_effect(filled.tree), current_catalog())
    choose = chooser(current_catalog(), imports_failed=imports_failed)
    loading = Loading(choose, names_in(complete))
    _drop_misnamed(complete, tree, findings)
    config = _validated(complete, filled.texts, loading, findings)
    if config is None or findings:
        raise ConfigError(list(dict.fromkeys(findings)), source=source)
    return config


def _import(names: Any, findings: list[str]) -> bool:
    """Import what the configuration names, before its components are looked up; False if one cannot be imported."""
    before = len(findings)
    for index, name in enumerate(names if isinstance(names, list) else ()):
        try:
            if isinstance(name, str):
                import_components(name)
        except RegistryError as error:
            findings.append(f"imports.{index}: {error.in_line}")
    return len(findings) == before


def _with_effect(tree: Tree) -> Tree:
    """The tree without empty sections, and without keys that have no effect, which are reported."""
    telemetry = value_at(tree, ("general", "telemetry"))
    keys = telemetry.items() if isinstance(telemetry, dict) else ()
    known = current_catalog().components[ComponentGroup.EVAL_CALLBACKS]
    others: list[KeyPath] = [("general", "telemetry", key) for key, _ in keys if key != "tracing"]
    exporters = value_at(tree, tracing := ("general", "telemetry", "tracing"))
    for name, raw in exporters.items() if isinstance(exporters, dict) else ():
        others += [] if known.has(TypedBaseModel.discriminator(raw)) else [(*tracing, name)]
    for path in (*WITHOUT_EFFECT, *others):
        above = value_at(tree, path[:-1])
        if isinstance(above, dict) and path[-1] in above:
            logger.warning("%s has no effect here", dotted(path))
            del above[path[-1]]
    for path in NAMED_SECTIONS:
        above = value_at(tree, path[:-1])
        if isinstance(above, dict) and above.get(path[-1], ...) is None:
            del above[path[-1]]
    return {
        key: value for key, value in tree.items() if value is not None and (value or key not in UNSUPPORTED_SECTIONS)
    }


def _drop_misnamed(tree: Tree, written: Tree, findings: list[str]) -> None:
    """Report components without a type that only an override names: a typo in the name."""
    for path in NAMED_SECTIONS:
        section, names = value_at(tree, path), value_at(written, path)
        if not isinstance(section, dict) or not isinstance(names, dict):
            continue
        for name in [each for each in section if each not in names]:
            if isinstance(section[name], dict) and not {"_type", "type"} & section[name].keys():
                del section[name]
                text = f"there is no '{name}' in the file.{did_you_mean(name, names)} There: {one_of(names)}."
                findings.append(f"{dotted((*path, name))}: {text} To add one, set its _type, too.")


def _validated(tree: Tree, texts: Mapping[KeyPath, str], loading: Loading, findings: list[str]) -> Config | None:
    """Validate the whole tree, and report what is wrong with it, also a key that a class would drop silently.

    `texts` holds the values of environment variables as text: `${KEY}` with the value 12345 is a number in YAML, but a
    field of type text gets the text.
    """
    config, errors = None, list[ErrorDetails]()
    try:
        config = Config.model_validate(tree, context=loading)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    as_text = [e["loc"] for e in errors if e["type"] in {"string_type", "path_type"} and e["loc"] in texts]
    if as_text:
        for *above, key in as_text:
            node: Any = reduce(getitem, above, tree)  # type: ignore[arg-type] # keys of mappings, indices of lists
            node[key] = texts[(*above, key)]
        return _validated(tree, {}, loading, findings)
    try:
        Config.model_validate(tree, context=loading._replace(extra="forbid"), extra="forbid")
    except ValidationError as error:
        found = (e for e in error.errors(include_url=False) if e["type"] in UNKNOWN_KEY)
        errors += [e for e in found if not keeps_unknown_keys(e["loc"], tree)]
    findings += findings_in((e for e in errors if e["type"] != "of_import"), tree)
    return config


def dump_resolved(config: Config, *, only_given: bool = False) -> str:
    """The whole configuration as YAML; secrets become stars here, and in everything written later.

    `only_given` leaves out the defaults of fields, but not components that follow from others.
    """
    known_secrets.remember(secrets_in(config.model_dump(by_alias=True)))
    visible = config
    given = config.finetuning.run_configuration
    if given is not None and given.override:
        starred = tuple((key, REDACTED if names_secret(key.split(".")) else text) for key, text in given.override)
        given = given.model_copy(update={"override": starred})
        finetuning = config.finetuning.model_copy(update={"run_configuration": given})
        visible = config.model_copy(update={"finetuning": finetuning})
    without = {"workflow"} if isinstance(config.workflow, EmptyFunctionConfig) else None
    tree = visible.model_dump(mode="json", by_alias=True, exclude=without, exclude_unset=only_given, fallback=str)
    return format_yaml(known_secrets.redact_tree(redacted(tree)))

"""Load a configuration: file, overrides, environment, components, references, in this order; and dump it as YAML."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from nat.config.components import choose, names_in, value_at
from nat.config.defaults import with_defaults
from nat.config.findings import UNKNOWN_KEY, KeyPath, Tree, dotted, findings_in, keeps_unknown_keys
from nat.config.secrets import environment_secrets, redacted, secrets_in
from nat.config.sources import Override, apply_overrides, expand_variables, format_yaml, read_tree
from nat.data_models.common import Loading, TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.data_models.function import EmptyFunctionConfig
from nat.errors import ConfigError, RegistryError, one_of
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components
from nat.registry.imports import import_components
from nat.secrets import known_secrets

logger = logging.getLogger(__name__)

_TRACING: KeyPath = ("general", "telemetry", "tracing")
_WITHOUT_EFFECT: tuple[KeyPath, ...] = (
    ("general", "use_uvloop"),
    ("general", "front_end"),
    ("general", "telemetry", "logging"),
    ("eval", "general", "workflow_alias"),
    ("eval", "general", "profiler"),
    ("eval", "general", "validate_llm_endpoints"),
)
"""Keys of the toolkit that are accepted with a warning: they do not concern a finetuning run."""


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
    filled, texts = expand_variables(apply_overrides(tree, overrides, findings), environ, findings)
    known_secrets.remember({*environment_secrets(environ), *secrets_in(filled)})
    if failed := _import(filled.get("imports")):
        raise ConfigError([*findings, *failed], source=source)
    config = _validated(with_defaults(_with_effect(filled)), texts, findings)
    if config is None or findings:
        raise ConfigError(list(dict.fromkeys(findings)), source=source)
    return config


def _import(names: Any) -> list[str]:
    """Import what the configuration names, before its components are looked up; returns what cannot be imported."""
    failed = []
    for index, name in enumerate(names if isinstance(names, list) else ()):
        try:
            if isinstance(name, str):
                import_components(name)
        except RegistryError as error:
            failed.append(f"imports.{index}: {error.in_line}")
    return failed


def _with_effect(tree: Tree) -> Tree:
    """The tree without empty sections, and without keys that have no effect, which are reported."""
    exporters, known = value_at(tree, _TRACING), current_catalog().components[ComponentGroup.EVAL_CALLBACKS]
    named = exporters.items() if isinstance(exporters, dict) else ()
    others = [(*_TRACING, name) for name, raw in named if not known.has(TypedBaseModel.discriminator(raw))]
    for path in (*_WITHOUT_EFFECT, *others):
        above = value_at(tree, path[:-1])
        if isinstance(above, dict) and path[-1] in above:
            logger.warning("%s has no effect here", dotted(path))
            del above[path[-1]]
    return {key: value for key, value in tree.items() if value not in (None, {}, [])}


def _validated(tree: Tree, texts: dict[KeyPath, str], findings: list[str]) -> Config | None:
    """Validate the whole tree, and report what is wrong with it, also a key that a class would drop silently.

    `texts` holds the values of environment variables as text: `${KEY}` with the value 12345 is a number in YAML, but a
    field of type text gets the text.
    """
    loading = Loading(choose, names_in(tree), "forbid")
    while True:
        try:
            return Config.model_validate(tree, context=loading, extra=loading.extra)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        if as_text := [e["loc"] for e in errors if e["type"] in {"string_type", "path_type"} and e["loc"] in texts]:
            for path in as_text:
                value_at(tree, path[:-1])[path[-1]] = texts.pop(path)
        elif wrong := [e for e in errors if e["type"] not in UNKNOWN_KEY or not keeps_unknown_keys(e["loc"], tree)]:
            findings += findings_in(wrong, tree)
            return None
        else:  # all of these unknown keys are passed on by their class
            loading = loading._replace(extra=None)


def dump_resolved(config: Config, *, only_given: bool = False) -> str:
    """The whole configuration as YAML; secrets become stars here, and in everything written later.

    `only_given` leaves out the defaults of fields, but not components that follow from others.
    """
    without, found = {"workflow"} if isinstance(config.workflow, EmptyFunctionConfig) else None, set[str]()
    tree = redacted(config.model_dump(by_alias=True, exclude=without, exclude_unset=only_given), found)
    known_secrets.remember(found)
    return format_yaml(known_secrets.redact_tree(to_jsonable_python(tree, fallback=str)))

"""Read and write YAML as the configuration loader does, for plug-ins."""

import os
from pathlib import Path
from typing import Any, TextIO

import yaml
from pydantic import BaseModel

from nat.config.findings import Tree
from nat.config.sources import deep_merge, expand_variables, format_yaml, parse_yaml, read_tree
from nat.errors import ConfigError

__all__ = ["deep_merge", "yaml_dump", "yaml_dumps", "yaml_load", "yaml_loads"]


def yaml_load(config_path: Path | str) -> Tree:
    """The mapping in a file, merged over its `base:`, with the environment's variables filled in."""
    return _filled(read_tree(Path(config_path)), str(config_path))


def yaml_loads(config: str) -> Tree:
    """The mapping in a text, with the environment's variables filled in."""
    try:
        tree = parse_yaml(config)
    except yaml.YAMLError as error:
        raise ConfigError([f"(root): not valid YAML: {error}"], source="text") from error
    if not isinstance(tree, dict):
        raise ConfigError([f"(root): expected a mapping, got {type(tree).__name__}"], source="text")
    return _filled(tree, "text")


def yaml_dump(config: BaseModel | Tree, fp: TextIO) -> None:
    """Write a config as YAML; secrets in SecretStr fields are stars."""
    fp.write(yaml_dumps(config))


def yaml_dumps(config: BaseModel | Tree) -> str:
    """A config as YAML; secrets in SecretStr fields are stars."""
    plain: Any = config.model_dump(mode="json", by_alias=True) if isinstance(config, BaseModel) else config
    return format_yaml(plain)


def _filled(tree: Tree, source: str) -> Tree:
    findings: list[str] = []
    filled, _ = expand_variables(tree, os.environ, findings)
    if findings:
        raise ConfigError(findings, source=source)
    return dict(filled)

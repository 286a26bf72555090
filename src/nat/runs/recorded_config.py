"""Read the configuration that a run recorded. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml


def config_of(text: str) -> dict[str, Any]:
    """The resolved configuration; empty if it is not a mapping."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # ValueError: a date that does not exist
        return {}
    return found if isinstance(found, dict) else {}


def value_at(config: Mapping[str, Any], *keys: Any) -> Any:
    """The value under nested keys; None if one of them is missing, or no text."""
    found: Any = config
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) and isinstance(key, str) else None
    return found


def finetuning_value(config: Mapping[str, Any], key: str) -> Any:
    """A setting of finetuning; a trainer without the runtime records its section alone."""
    return value_at(config, "finetuning", key) or config.get(key)


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """The values of a configuration by their dotted keys."""
    if isinstance(tree, list):
        tree = dict(enumerate(tree))
    if not isinstance(tree, Mapping):
        return {path: tree}
    return {key: leaf for name, own in tree.items() for key, leaf in leaves(own, f"{path}.{name}".lstrip(".")).items()}

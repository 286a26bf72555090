"""Read the configuration that a run recorded, whichever release wrote it. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml

_DEEPEST = 100
"""Levels of nesting; YAML takes long for thousands of them."""


class _RecordedLoader(yaml.SafeLoader):
    """Refuses what `nat` never writes: deep nesting, and aliases, which can make a short text very large."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent) or self._depth == _DEEPEST:
            raise yaml.YAMLError("an alias, or too deeply nested")
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def config_of(text: str) -> dict[str, Any]:
    """The resolved configuration; empty if it is not a mapping, or none that `nat` could have written."""
    try:
        found = yaml.load(text, Loader=_RecordedLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError):  # ValueError: a date that does not exist, a number of thousands of digits
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

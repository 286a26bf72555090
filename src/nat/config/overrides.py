"""`-o llms.agent.temperature 0.4`: replace any value of a YAML from outside."""

from collections.abc import Sequence
from typing import Any

import yaml

from nat.config.files import Tree
from nat.config.findings import Findings, Path, shown
from nat.config.yaml_text import parse_yaml, problem_of

Override = tuple[str, str]
"""A dotted path, in which a number is the index of a list, and a YAML text."""


def apply_overrides(tree: Tree, overrides: Sequence[Override], findings: Findings) -> Tree:
    """A new tree with every override applied, in order; missing mappings on the way are made."""
    result: Any = tree
    for dotted_path, text in overrides:
        path = tuple(dotted_path.split("."))
        try:
            value = parse_yaml(text)
        except yaml.YAMLError as error:
            findings.add(path, f"the value of the override is no YAML: {problem_of(error)}")
            continue
        if not all(path):
            findings.add(("override",), f"{dotted_path!r} is no dotted path like finetuning.num_epochs")
            continue
        result = _replaced(result, path, value, findings, ())
    return dict(result)


def _replaced(node: Any, path: Path, value: Any, findings: Findings, done: Path) -> Any:
    if not path:
        return value
    key, rest = str(path[0]), path[1:]
    here = (*done, key)
    if node is None or isinstance(node, dict):
        mapping = node or {}
        return {**mapping, key: _replaced(mapping.get(key), rest, value, findings, here)}
    if isinstance(node, list):
        if key.isdecimal() and int(key) < len(node):
            index = int(key)
            return [*node[:index], _replaced(node[index], rest, value, findings, here), *node[index + 1 :]]
        findings.add(here, f"the override wants item {key} of a list of {len(node)}")
        return node
    findings.add(here, f"the override goes into {shown(node, path=here)}, which has no keys")
    return node

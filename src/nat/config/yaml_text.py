"""YAML as people write it: `1e-6` is a number, a key that stands twice is an error."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

_FLOAT = re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$")
"""The floats of YAML 1.2 that YAML 1.1 takes for text."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key_node.value}' stands twice", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def parse_yaml(text: str) -> Any:
    """The value of a YAML (or JSON) text; `yaml.YAMLError` says where it breaks."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


def problem_of(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the text around it, which may hold a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return type(error).__name__
    mark = error.problem_mark
    about = ", ".join(filter(None, (error.context, error.problem)))
    return f"{about}, in line {mark.line + 1}, column {mark.column + 1}"


def format_yaml(value: Any) -> str:
    """A value as YAML, keys in their order."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
    return text

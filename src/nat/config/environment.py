"""`${NAME}` in the values of a YAML.

Values are filled in after the YAML was parsed, one scalar at a time, so that a variable can change a value and
never the structure. A scalar that is nothing but a variable is parsed as YAML: `${N:-5}` is the number 5.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from nat.config.findings import Findings, Path
from nat.config.secrets import filled_secrets
from nat.config.yaml_text import parse_yaml
from nat.registry.suggest import did_you_mean

_VARIABLE = re.compile(
    r"\\\$|\$\{(?P<braced>[A-Za-z_]\w*)(?P<operator>:?-)?(?P<default>(?(operator)[^}]*))\}|\$(?P<plain>[A-Za-z_]\w*)"
)
_WHOLE = re.compile(r"\$\{[^}]*\}|\$\w+")


@dataclass(frozen=True)
class Filled:
    """A tree without variables; `texts` holds, by path, the text of each scalar that was nothing but a variable."""

    tree: Any
    texts: Mapping[Path, str]
    secrets: frozenset[str] = frozenset()
    """What the environment filled in and `nat.config.secrets` counts as a secret."""


def fill_in(tree: Any, environ: Mapping[str, str], findings: Findings) -> Filled:
    r"""The tree with each variable replaced; one that is unset and has no default is a finding.

    `${X}` and `$X`; `${X:-d}` gives d if X is unset or empty, `${X-d}` if it is unset; `\$` is a dollar sign.
    """
    texts: dict[Path, str] = {}
    secrets: set[str] = set()

    def fill(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {key: fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value
        text = _fill_text(value, environ, findings, path, secrets)
        if _WHOLE.fullmatch(value) is None:
            return text
        texts[path] = text
        return _scalar(text)

    return Filled(fill(tree, ()), texts, frozenset(secrets))


def _fill_text(text: str, environ: Mapping[str, str], findings: Findings, path: Path, secrets: set[str]) -> str:
    def replacement(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        if name is None:
            return "$"
        found = environ.get(name)
        if found is None or (found == "" and match["operator"] == ":-"):
            found = match["default"] if match["operator"] else found
        if found is None:
            hint = did_you_mean(name, environ)
            findings.add(
                path, f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}.{hint}"
            )
            return ""
        if found == environ.get(name):
            secrets.update(filled_secrets(name, found, path))
        return found

    return _VARIABLE.sub(replacement, text)


def _scalar(text: str) -> Any:
    """A variable's value as YAML sees it; what is no plain scalar, or a number with leading zeros, stays text."""
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, int) and not isinstance(value, bool) and str(value) != text:
        return text
    return value if isinstance(value, (bool, int, float, type(None))) else text

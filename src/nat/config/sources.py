"""Where configuration values come from: a YAML file with its `base:` files, overrides, and environment variables.

Environment variables are filled in after the YAML was parsed, one scalar at a time, so that a variable can change a
value but never the structure. A scalar that consists of one variable is parsed as YAML: `${N:-5}` is the number 5.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nat.config.findings import KeyPath, Tree, dotted, preview
from nat.config.secrets import secrets_in
from nat.errors import ConfigError, did_you_mean, did_you_mean_path
from nat.files import expanded
from nat.secrets import known_secrets

_FLOAT = re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$")
"""Floats of YAML 1.2 that YAML 1.1 reads as text."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge")]
        seen: set[str] = set()
        for key in keys:
            if key.value in seen:
                twice = f"the key '{key.value}' occurs twice"
                raise yaml.constructor.ConstructorError(None, None, twice, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def parse_yaml(text: str) -> Any:
    """The value of a YAML (or JSON) text; `1e-6` is a number, and a repeated key raises `yaml.YAMLError`."""
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader


def yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the surrounding text, which may contain a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return type(error).__name__
    mark, about = error.problem_mark, ", ".join(filter(None, (error.context, error.problem)))
    return f"line {mark.line + 1}, column {mark.column + 1}: {about}"


def format_yaml(value: Any) -> str:
    """A value as YAML, keys in insertion order."""
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
    return text


def read_tree(path: Path, inherited_by: tuple[Path, ...] = ()) -> Tree:
    """Read a file's mapping, merged over that of its `base:`; a file that cannot be read raises ConfigError."""
    resolved, wanted_by = path.resolve(), f" (the `base:` of {inherited_by[-1]})" if inherited_by else ""
    if resolved in inherited_by:
        chain = " → ".join(str(each) for each in (*inherited_by, resolved))
        raise ConfigError([f"base: the files inherit from each other: {chain}"], source=str(path))
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        seen = f"{path}{wanted_by} cannot be read: {error.strerror}{did_you_mean_path(path)}"
        raise ConfigError([seen], hint=f"paths start at {Path.cwd()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}{wanted_by} is not UTF-8: {error}"], hint="save the file as UTF-8") from error
    except yaml.YAMLError as error:
        raise ConfigError([f"not valid YAML, {yaml_problem(error)}"], source=str(path)) from error
    if not isinstance(tree, dict | None):
        seen = "a list" if isinstance(tree, list) else preview(tree)
        raise ConfigError([f"expected sections such as `llms:` and `workflow:`, got {seen}"], source=str(path))
    tree = tree or {}
    known_secrets.remember(secret for secret in secrets_in(tree) if "$" not in secret)  # variables are filled in later
    if (base := tree.pop("base", None)) is None:
        return tree
    if not isinstance(base, str):
        raise ConfigError([f"base: expected the path of one file, got {preview(base)}"], source=str(path))
    return deep_merge(read_tree(path.parent / expanded(base), (*inherited_by, resolved)), tree)


def deep_merge(base: Tree, override: Tree) -> Tree:
    """Merge mappings key by key and replace everything else; neither argument is changed."""
    merged = dict(base)
    for key, value in override.items():
        old = merged.get(key)
        merged[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


APPEND = "+"
Override = tuple[str, str]
"""A dotted path, in which a number is a list index and `+` the place after a list's last item; and a YAML text."""


def apply_overrides(tree: Tree, overrides: Sequence[Override], findings: list[str]) -> Tree:
    """A new tree with every override applied, in order; missing parent mappings are created."""
    result: Any = tree
    for path, text in overrides:
        try:
            result = _replaced(result, path.split("."), parse_yaml(text))
        except yaml.YAMLError as error:
            findings.append(f"{path}: the override's value is not valid YAML, {yaml_problem(error)}")
        except LookupError as error:
            findings.append(f"{path}: the override leads nowhere: {error.args[0]}")
    return dict(result)


def _replaced(node: Any, path: Sequence[str], value: Any) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if not key:
        raise LookupError("it is not a dotted path such as finetuning.num_epochs")
    if node is None:
        node = [] if key == APPEND else {}
    if isinstance(node, dict):
        return {**node, key: _replaced(node.get(key), rest, value)}
    if not isinstance(node, list):
        raise LookupError(f"{preview(node)} has no key '{key}'")
    if key == APPEND:
        return [*node, _replaced(None, rest, value)]
    if not key.isdecimal() or int(key) >= len(node):
        raise LookupError(f"'{key}' is no item of a list of {len(node)}; they count from 0, and + appends")
    index = int(key)
    return [*node[:index], _replaced(node[index], rest, value), *node[index + 1 :]]


_VARIABLE = re.compile(
    r"\\\$|\$\{(?P<braced>[A-Za-z_]\w*)(?P<operator>:?-)?(?P<default>(?(operator)[^}]*))\}|\$(?P<plain>[A-Za-z_]\w*)"
)
_WHOLE = re.compile(r"\$\{[^}]*\}|\$\w+")


def expand_variables(tree: Any, environ: Mapping[str, str], findings: list[str]) -> tuple[Any, dict[KeyPath, str]]:
    r"""Replace each variable by its value; one that is unset and has no default is reported.

    `${X}` and `$X`; `${X:-d}` gives d if X is unset or empty, `${X-d}` if it is unset; `\$` is a dollar sign. Returns
    the tree, and by path the text of each scalar that was only a variable.
    """
    texts: dict[KeyPath, str] = {}

    def fill(value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value
        text = _VARIABLE.sub(lambda match: value_of(match, path), value)
        if _WHOLE.fullmatch(value) is None:
            return text
        texts[path] = text
        return _scalar(text)

    def value_of(match: re.Match[str], path: KeyPath) -> str:
        name = match["braced"] or match["plain"]
        if name is None:
            return "$"
        found = environ.get(name)
        if match["operator"] and (found is None or (found == "" and match["operator"] == ":-")):
            return match["default"]
        if found is None:
            unset = f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}."
            findings.append(f"{dotted(path)}: {unset}{did_you_mean(name, environ)}")
        return found or ""

    return fill(tree, ()), texts


def _scalar(text: str) -> Any:
    """A variable's value as YAML reads it; collections and numbers with leading zeros stay text."""
    try:
        value = parse_yaml(text)
    except yaml.YAMLError:
        return text
    is_number = isinstance(value, int) and not isinstance(value, bool)
    same = isinstance(value, bool | int | float | None) and (not is_number or str(value) == text)
    return value if same else text

"""A YAML file with the files that it inherits from, as one tree.

What is secret in a file is known from now on, also where an inheriting file or an override replaces it.
"""

from pathlib import Path
from typing import Any

import yaml

from nat.config.findings import shown
from nat.config.secrets import secrets_in
from nat.config.yaml_text import parse_yaml, problem_of
from nat.errors import ConfigError
from nat.secrets import known_secrets

Tree = dict[str, Any]


def read_tree(path: Path) -> Tree:
    """The file's mapping, merged over that of its `base:`; a file that cannot be read is a ConfigError."""
    return _read(path, ())


def deep_merge(base: Tree, override: Tree) -> Tree:
    """Mappings are merged key by key; everything else is replaced. Neither argument is changed."""
    merged = dict(base)
    for key, value in override.items():
        old = merged.get(key)
        merged[key] = deep_merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _read(path: Path, inherited_by: tuple[Path, ...]) -> Tree:
    resolved = path.resolve()
    if resolved in inherited_by:
        chain = " → ".join(str(p) for p in (*inherited_by, resolved))
        raise ConfigError([f"base: the files inherit from each other: {chain}"], source=str(path))
    tree = _parse(path, inherited_by)
    base = tree.pop("base", None)
    if base is None:
        return tree
    if not isinstance(base, str):
        raise ConfigError([f"base: a path is wanted, but it is {shown(base)}"], source=str(path))
    return deep_merge(_read(path.parent / base, (*inherited_by, resolved)), tree)


def _parse(path: Path, inherited_by: tuple[Path, ...]) -> Tree:
    wanted_by = f" (the `base:` of {inherited_by[-1]})" if inherited_by else ""
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError([f"{path}{wanted_by} does not exist"], hint=f"paths start at {Path.cwd()}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}{wanted_by} cannot be read: {error}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"(root): this is no YAML: {problem_of(error)}"], source=str(path)) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError([f"(root): a mapping is wanted, but it is {type(tree).__name__}"], source=str(path))
    filled = (secret for secret in secrets_in(tree) if "$" not in secret)  # variables are filled in later
    known_secrets.remember(filled)
    return tree

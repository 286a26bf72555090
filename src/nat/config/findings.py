"""Say what is wrong with a configuration: pydantic's errors, one sentence for each key of the file."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from nat.config.secrets import names_secret, redacted
from nat.data_models.common import TypedBaseModel
from nat.data_models.config import Config
from nat.errors import did_you_mean, one_of, problem_of
from nat.registry.catalog import current_catalog
from nat.registry.description import classes_in, keys_of
from nat.secrets import REDACTED, excerpt

Tree = dict[str, Any]
KeyPath = tuple[str | int, ...]
"""The keys and indices that lead to a value."""
UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}
"""Pydantic's types of the error about a key that a class does not have."""
_COMPLETE = {"missing", "component", "reference"}
"""Types of errors whose text says all."""
_KEY = re.compile(r"_?[a-z]\w*")
"""A key, in contrast to the name that pydantic gives to a part of a union."""
_MAX_KEYS = 12


def findings_in(errors: Iterable[ErrorDetails], tree: Tree) -> list[str]:
    """Pydantic's errors about the whole tree as `path: what is wrong`.

    The parts of a union make one finding; where one part fits so far that the error is inside of it, it is that one's.
    """
    found: dict[KeyPath, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(tuple(_keys(error["loc"], tree)), []).append(error)
    above = {path[:length] for path in found for length in range(len(path))}
    findings = []
    for path, details in found.items():
        if path in above:
            continue
        kind, value = details[0]["type"], details[0]["input"]
        text = " or ".join(dict.fromkeys(problem_of(each) for each in details))
        seen = preview(value, path=path, length=80)
        if kind in UNKNOWN_KEY:
            text = f"unknown key.{_instead(path, set(keys_of(owner_of(path, tree))))}"
        elif kind not in _COMPLETE and not isinstance(value, dict) and seen not in text:
            text = f"{text}; got {seen}"
        findings.append(f"{dotted(path)}: {text}")
    return findings


def keeps_unknown_keys(location: KeyPath, tree: Tree) -> bool:
    """True if the class at an error's location keeps keys that it does not know, to pass them on."""
    owner = owner_of(tuple(_keys(location, tree)), tree)
    return isinstance(owner, type) and issubclass(owner, BaseModel) and owner.model_config.get("extra") == "allow"


def _instead(path: KeyPath, known: set[str]) -> str:
    """What to write in place of a key; `known` are the keys that are allowed there."""
    keys = known - {"type", "reward"}
    listed = f" Known keys: {one_of(keys)}." if keys and (len(keys) <= _MAX_KEYS or len(path) == 1) else ""
    hint = did_you_mean(str(path[-1]), keys) or listed or " docs/reference/configuration/index.md lists all keys."
    if len(path) == 1:
        return f"{hint} The toolkit's other sections are not part of this project: docs/from/nat.md."
    return f"{hint} Put fields that only this server knows under extra_body." if "extra_body" in keys else hint


def dotted(path: KeyPath) -> str:
    """`a.b.0` for the keys a, b and the index 0; `(root)` for the whole file."""
    return ".".join(str(part) for part in path) or "(root)"


def preview(value: Any, *, path: KeyPath = (), length: int = 60) -> str:
    """The beginning of a value for a message; stars if its key names a secret or the value holds one."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return REDACTED if names_secret(path) else excerpt(repr(redacted(value)), length)


def owner_of(path: KeyPath, tree: Any) -> type | None:
    """The class that has, or would have, the last key of a path; None if there is none, as in a mapping."""
    annotation: Any = Config
    for key in path[:-1]:
        annotation = _below(annotation, key)
        tree = tree.get(key) if isinstance(tree, dict) else tree[int(key)] if isinstance(tree, list) else None
        base = next(iter(classes_in(annotation)), None)
        if base is not None and (group := current_catalog().group_of(base)) is not None:
            registered, name = current_catalog().components[group], TypedBaseModel.discriminator(tree)
            annotation = registered.get(name).config_type if name is not None and registered.has(name) else base
    return next(iter(classes_in(annotation)), None)


def _below(annotation: Any, key: str | int) -> Any:
    """The annotation of what a key or index of a value leads to; None if nothing is known about it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if key in (known := keys_of(annotation)):
        return known[str(key)].annotation
    if origin in (dict, list, tuple, set):
        return arguments[-1] if origin is dict else arguments[0]
    return next((found for each in arguments if (found := _below(each, key)) is not None), None)


def _keys(location: Sequence[str | int], node: Any) -> Iterator[str | int]:
    """The keys of the file in an error's location, which has the names of a union's parts, too."""
    for part in location:
        if (isinstance(node, dict) and part in node) or (isinstance(node, list) and isinstance(part, int)):
            node = node[part]  # type: ignore[index] # a key of a mapping, or an index of a list
        elif not isinstance(node, dict) or not _KEY.fullmatch(str(part)):
            continue
        yield part

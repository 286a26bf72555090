"""Say what is wrong with a configuration: pydantic's errors, one sentence for each key of the file."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from nat.config.secrets import names_secret, redacted
from nat.data_models.common import TypedBaseModel
from nat.data_models.config import Config
from nat.errors import LIST, MAPPING, did_you_mean, expected, one_of
from nat.registry.catalog import current_catalog
from nat.registry.description import classes_in, keys_of
from nat.secrets import REDACTED, excerpt

Tree = dict[str, Any]
KeyPath = tuple[str | int, ...]
"""The keys and indices that lead to a value."""
UNKNOWN_KEY = {"extra_forbidden", "unexpected_keyword_argument"}
"""Pydantic's types of the error about a key that a class does not have."""
_KEY = re.compile(r"_?[a-z]\w*")
"""A key, in contrast to the name that pydantic gives to a part of a union."""
_MAX_KEYS = 12
_OF_THE_TOOLKIT = {
    **dict.fromkeys(("do_auto_retry", "retry_on_status_codes", "retry_on_errors"), "failed requests are sent again"),
    **dict.fromkeys(("optimizable_params", "search_space"), "this project has no optimizer"),
}
"""Options of all LLMs of the toolkit, and why they are none here."""
UNSUPPORTED_SECTIONS = {
    *("embedders", "memory", "object_stores", "retrievers"),
    *("authentication", "middleware", "function_groups", "optimizer"),
}
"""Sections of the toolkit that this project has not."""


def findings_in(errors: Iterable[ErrorDetails], tree: Tree) -> list[str]:
    """Pydantic's errors about the whole tree as `path: what is wrong`; the parts of a union make one finding."""
    found: dict[KeyPath, list[ErrorDetails]] = {}
    for error in errors:
        found.setdefault(tuple(_keys(error["loc"], tree)), []).append(error)
    missing = {path for path, [first, *_] in found.items() if first["type"] == "missing"}
    texts: dict[KeyPath, str] = {}
    for path, details in found.items():
        known = keys_of(owner_of(path, tree))
        if details[0]["type"] in UNKNOWN_KEY:
            beside = {str(each[-1]) for each in missing if each[:-1] == path[:-1]}
            meant = {key for key in beside if did_you_mean(str(path[-1]), [key])}  # one mistake, not two
            missing -= {(*path[:-1], key) for key in meant}
            texts[path] = unknown_key(path, meant or set(known))
        elif details[0]["type"] != "missing":
            texts[path] = _wrong_value(details, known.get(str(path[-1])) if path else None, path)
    for path in missing:
        texts[path] = f"this key is required{_meaning(keys_of(owner_of(path, tree)).get(str(path[-1])))}"
    return [f"{dotted(path)}: {texts[path]}" for path in found if path in texts]


def keeps_unknown_keys(location: KeyPath, tree: Tree) -> bool:
    """True if the class at an error's location keeps keys that it does not know, to pass them on."""
    owner = owner_of(tuple(_keys(location, tree)), tree)
    return isinstance(owner, type) and issubclass(owner, BaseModel) and owner.model_config.get("extra") == "allow"


def unknown_key(path: KeyPath, known: set[str]) -> str:
    """What to write in place of a key; `known` are the keys that are allowed there."""
    key, keys = str(path[-1]), known - {"type", "reward"}
    if len(path) == 1 and key in UNSUPPORTED_SECTIONS:
        where = "remove the section, or train in the toolkit's environment: docs/from/nat.md"
        return f"this section is not part of this project; {where}"
    if path[0] == "llms" and key in _OF_THE_TOOLKIT:
        return f"unknown key. Leave it out: {_OF_THE_TOOLKIT[key]}."
    hint = did_you_mean(key, keys)
    if not hint and len(keys) > _MAX_KEYS and len(path) > 1:
        hint = " docs/reference/configuration/index.md lists all keys."
    elif not hint and keys:
        hint = f" Known keys: {one_of(keys)}."
    of_server = (
        " Put fields that only this server knows under extra_body." if keys >= {"base_url", "extra_body"} else ""
    )
    return f"unknown key.{hint}{of_server}"


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


def _meaning(field: FieldInfo | None) -> str:
    """What a missing key means, by the first sentence of its description."""
    told = "" if field is None or field.description is None else " ".join(field.description.split())
    return f" ({re.split('[.;] ', told)[0].rstrip('.')})" if told else ""


def _keys(location: Sequence[str | int], node: Any) -> Iterator[str | int]:
    """The keys of the file in an error's location, which has the names of a union's parts, too."""
    for part in location:
        if (isinstance(node, dict) and part in node) or (isinstance(node, list) and isinstance(part, int)):
            node = node[part]  # type: ignore[index] # a key of a mapping, or an index of a list
        elif not isinstance(node, dict) or not _KEY.fullmatch(str(part)):
            continue
        yield part


def _wrong_value(details: Sequence[ErrorDetails], field: FieldInfo | None, path: KeyPath) -> str:
    """What was wanted, what was found, and how to write what was probably meant."""
    value, kind = details[0]["input"], details[0]["type"]
    model = None if field is None else next(iter(classes_in(field.annotation)), None)
    texts = list(dict.fromkeys(expected(dict(detail)) for detail in details))
    text = " or ".join([texts[0], *(each.removeprefix("expected ") for each in texts[1:])])
    if kind in ("component", "reference"):
        return text
    if MAPPING in text and model is not None and current_catalog().group_of(model) is None:
        keys = sorted(set(keys_of(model)) - {"type", "_type"})
        text = text.replace(
            MAPPING, f"a mapping (keys: {', '.join(keys[:_MAX_KEYS])}{', …' if len(keys) > _MAX_KEYS else ''})"
        )
    seen = preview(value, path=path, length=80)
    if kind == "value_error":
        return text if seen in text or names_secret(path) or isinstance(value, dict) else f"{text}; got {seen}"
    return f"{text}, got {seen}{'' if names_secret(path) else _advice(text, value, model)}"


def _advice(text: str, value: Any, model: Any) -> str:
    """How to write what was probably meant, with a leading `; `."""
    is_scalar = isinstance(value, str | int | float)
    if isinstance(value, str) and LIST in text and "mapping" not in text:
        return f"; write [{value}]"
    if text == "expected a text" and is_scalar:
        return "; put it in quotes"
    if isinstance(model, type) and issubclass(model, BaseModel) and is_scalar and "mapping" in text:
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        if value is True:
            return "; write {enabled: true}" if "enabled" in model.model_fields else "; write {} for its defaults"
        return f"; write {{{needed[0]}: {value}}}" if len(needed) == 1 else ""
    return ""

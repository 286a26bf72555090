"""Validate one part of the tree, and forgive what the environment made ambiguous."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from nat.config.findings import Findings, Path
from nat.config.ignored import ignored_keys

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], raw: Any, path: Path, texts: Mapping[Path, str], findings: Findings) -> M | None:
    """The model that `raw` stands for; if there are findings, what is left without the wrong keys, or None.

    The remainder serves the checks that follow, so that they find what they would have found anyway.

    `texts` holds the values of variables as text: `${KEY}` with the value 12345 is a number to YAML, but a field
    that wants text gets the text.
    """
    try:
        return _whole(model, raw, path, findings)
    except ValidationError as error:
        as_text = {
            tuple(e["loc"]): texts[(*path, *e["loc"])]
            for e in error.errors(include_url=False)
            if e["type"] in {"string_type", "path_type"} and (*path, *e["loc"]) in texts
        }
        if as_text:
            return validated(model, _replaced(raw, as_text), path, {}, findings)
        findings.add_validation(path, error, model)
        wrong = {tuple(e["loc"]) for e in error.errors(include_url=False)}
        return _remainder(model, _without(raw, wrong), path, findings) if () not in wrong else None


def _whole(model: type[M], raw: Any, path: Path, findings: Findings) -> M:
    value = model.model_validate(raw)
    for location, known in ignored_keys(value, raw):
        findings.add_unknown_key((*path, *location), known)
    return value


def _remainder(model: type[M], raw: Any, path: Path, findings: Findings) -> M | None:
    try:
        return _whole(model, raw, path, findings)
    except ValidationError as error:
        if all(e["loc"] == () for e in error.errors(include_url=False)):
            findings.add_validation(path, error, model)  # what concerns the whole had not been looked at before
        return None


def _without(node: Any, wrong: set[Path], here: Path = ()) -> Any:
    if not isinstance(node, dict):
        return node
    return {key: _without(item, wrong, (*here, key)) for key, item in node.items() if (*here, key) not in wrong}


def _replaced(node: Any, texts: Mapping[Path, str], here: Path = ()) -> Any:
    if here in texts:
        return texts[here]
    if isinstance(node, dict):
        return {key: _replaced(item, texts, (*here, key)) for key, item in node.items()}
    if isinstance(node, list):
        return [_replaced(item, texts, (*here, index)) for index, item in enumerate(node)]
    return node

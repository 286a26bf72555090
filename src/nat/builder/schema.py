"""A JSON schema without references, for those who have no place for its definitions. Pure."""

from collections.abc import Mapping
from typing import Any

_DEFINITIONS = "#/$defs/"


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with every definition written out where it is used.

    A definition inside of itself becomes `{"type": "object"}`: written out it would have no end.
    """
    whole = {key: value for key, value in schema.items() if key != "$defs"}
    result: dict[str, Any] = _inlined(whole, schema.get("$defs", {}), ())
    return result


def _inlined(part: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_inlined(each, definitions, inside) for each in part]
    if not isinstance(part, Mapping):
        return part
    rest = {key: _inlined(value, definitions, inside) for key, value in part.items() if key != "$ref"}
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return rest
    name = reference.removeprefix(_DEFINITIONS)
    if name in inside or name not in definitions:
        return {"type": "object", **rest}
    return {**_inlined(definitions[name], definitions, (*inside, name)), **rest}

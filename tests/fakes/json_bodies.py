"""Request bodies from a route's JSON schema: valid, nearly valid and invalid ones."""

import json
from typing import Any

import httpx
from hypothesis import strategies as st

HUGE = 10**400
STRANGE = [None, True, -1, 0, 1.5, HUGE, -HUGE, "", "x" * 300, "\ud83d\ude00", "\x00", [], [None, None], {}, {"": None}]
"""Values that handlers often forget."""
junk = st.sampled_from(STRANGE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def bodies(schema: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Bodies for a route with this schema; most of their fields fit it."""
    fitting = values(schema, schema.get("$defs", {}), depth=5)
    return (fitting | junk).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20)


def values(schema: dict[str, Any], definitions: dict[str, Any], *, depth: int) -> st.SearchStrategy[Any]:
    """Values that fit the schema; one in nine does not."""
    if depth == 0:
        return junk
    return st.integers(0, 8).flatmap(lambda die: junk if die == 0 else _fitting(schema, definitions, depth))


def _fitting(schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    choices = [schema[several] for several in ("anyOf", "oneOf", "allOf") if several in schema]
    if "$ref" in schema:
        choices = [[definitions[schema["$ref"].rpartition("/")[2]]]]
    if choices:
        return st.sampled_from(choices[0]).flatmap(lambda one: _fitting(one, definitions, depth))
    if schema.get("type") == "object":
        return _object(schema, definitions, depth)
    if schema.get("type") == "array":
        inner = values(schema.get("items", {}), definitions, depth=depth - 1)
        return st.lists(inner, min_size=schema.get("minItems", 0), max_size=3)
    return _single(schema)


def _single(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    kinds = {
        "string": st.sampled_from(["hi", "user", "a-1", ""]) | st.text(max_size=5),
        "integer": st.integers(schema.get("minimum", -2), schema.get("maximum", 40)),
        "number": st.floats(0, 2) | st.floats(),
        "boolean": st.booleans(),
    }
    return kinds.get(schema.get("type", ""), junk)


def _object(schema: dict[str, Any], definitions: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    known = {name: values(inner, definitions, depth=depth - 1) for name, inner in schema.get("properties", {}).items()}
    required = schema.get("required", [])
    fields = st.fixed_dictionaries(
        {name: known[name] for name in required if name in known},
        optional={name: inner for name, inner in known.items() if name not in required},
    )
    return fields | st.tuples(fields, st.dictionaries(st.text(max_size=5), junk, max_size=2)).map(lambda t: t[0] | t[1])


def with_fields(schema: dict[str, Any], **fields: dict[str, Any]) -> dict[str, Any]:
    """The schema with other schemas for some fields, which become required."""
    return {
        **schema,
        "properties": schema["properties"] | fields,
        "required": [*{*schema.get("required", []), *fields}],
    }


def check_answer(answer: httpx.Response) -> None:
    """Check that the server did not fail, and that an error has the API's shape, a cause and no traceback."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert isinstance(error["message"], str)
        assert error["message"]
        assert isinstance(error["type"], str)
        assert "Traceback" not in answer.text

"""Convert a tool's JSON schema to smolagents' format, which has no references. Pure.

It is apart from `smolagents.py` so that it can be imported without smolagents.
"""

from typing import Any

from nat.builder.tool import inlined


def inputs_of(parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a JSON schema, each with type and description; optional ones are `nullable`."""
    whole = inlined(parameters)
    required = whole.get("required", ())
    inputs = {}
    for name, schema in whole.get("properties", {}).items():
        entry = {"type": "any", "description": schema.get("title", name), **schema}
        inputs[name] = entry if name in required else {**entry, "nullable": True}
    return inputs

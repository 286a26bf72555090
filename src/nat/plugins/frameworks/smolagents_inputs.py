"""The arguments of a tool as smolagents wants them: each with type and description, and without references. Pure."""

from typing import Any

from nat.builder.tool import inlined


def inputs_of(parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a JSON schema; what is not required is nullable, which is smolagents' word for it."""
    whole = inlined(parameters)
    required = whole.get("required", ())
    inputs = {}
    for name, schema in whole.get("properties", {}).items():
        told = {"type": "any", "description": schema.get("title", name), **schema}
        inputs[name] = told if name in required else {**told, "nullable": True}
    return inputs

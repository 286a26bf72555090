"""What the requests look like, for the OpenAPI page. Pure."""

from typing import Any

from pydantic.json_schema import JsonSchemaValue

from nat.builder.function import Function
from nat.builder.tool import inlined
from nat.front_end.inputs import INPUT_KEY

CHAT_BODY: JsonSchemaValue = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {"role": {"type": "string"}, "content": {}},
            },
            "description": "A workflow that takes `messages` gets all; any other the last user message's text.",
        },
        "model": {"type": "string", "description": "Comes back in the answer."},
        "stream": {"type": "boolean", "description": "At /v1/chat/completions: answer piece by piece."},
    },
}


def input_body(function: Function) -> JsonSchemaValue:
    """The workflow's arguments by name, or the input as `input_message`."""
    # Written out: a reference would point to another place of the page.
    schema = inlined(function.input_schema.model_json_schema())
    return {"anyOf": [schema, {"type": "object", "required": [INPUT_KEY], "properties": {INPUT_KEY: {}}}]}


def describe(body: JsonSchemaValue) -> dict[str, Any]:
    """A route's part of the page."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}

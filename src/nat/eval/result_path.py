"""Find the answer in the output of a workflow."""

from typing import Any

from pydantic import BaseModel

from nat.data_models.api_server import ChatResponse
from nat.secrets import excerpt
from nat.wire.json import parse_json

WHOLE = "$"
"""The path of the whole output."""


JsonPath = Any
"""A parsed JSON path of `jsonpath_ng`, which has no types; `str` gives its text."""


def compile_path(path: str) -> JsonPath:
    """Parse a JSON path; ValueError has the parser's message."""
    from jsonpath_ng.exceptions import JSONPathError
    from jsonpath_ng.parser import parse

    try:
        return parse(path)
    except JSONPathError as error:
        raise ValueError(f"'{path}' is not a JSON path: {error}") from error


def value_at(path: JsonPath, output: Any) -> Any:
    """The first match in the output; LookupError if there is none."""
    matches = path.find(as_json_value(output))
    if not matches:
        raise LookupError(f"nothing at this path in the output {excerpt(repr(output), 200)}")
    return matches[0].value


def as_json_value(output: Any) -> Any:
    """The output as JSON values: records become dicts, JSON text is parsed, other text is unchanged."""
    if isinstance(output, BaseModel):
        return output.model_dump(mode="json")
    if isinstance(output, str):
        try:
            return parse_json(output)
        except ValueError:
            return output
    return output


def answer_of(output: Any, path: JsonPath | None) -> Any:
    """The answer for evaluators: the value at the path, or the output: a chat's text, other records as JSON text."""
    if path is not None:
        return value_at(path, output)
    if isinstance(output, ChatResponse):
        return output.text
    return output.model_dump_json(indent=2) if isinstance(output, BaseModel) else output

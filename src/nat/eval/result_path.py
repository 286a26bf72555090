"""Find the answer in what a workflow returned."""

from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import BaseModel

from nat.data_models.api_server import ChatResponse
from nat.wire.text import parsed

WHOLE = "$"
"""The path of the whole output."""


class JsonMatch(Protocol):
    """One place that a path found."""

    value: Any


class JsonPath(Protocol):
    """A parsed JSON path; its text is what it was parsed from."""

    def find(self, value: Any, /) -> Sequence[JsonMatch]: ...


def compile_path(path: str) -> JsonPath:
    """The parsed JSON path; ValueError with the parser's words if it is none."""
    from jsonpath_ng.exceptions import JSONPathError  # noqa: PLC0415 - heavy, and most evaluations need no path
    from jsonpath_ng.parser import parse  # noqa: PLC0415 - likewise

    try:
        compiled: JsonPath = parse(path)
    except JSONPathError as error:
        raise ValueError(f"'{path}' is not a JSON path: {error}") from error
    return compiled


def value_at(path: JsonPath, output: Any) -> Any:
    """The first value that the path finds in the output; LookupError if it finds none."""
    matches = path.find(as_json_value(output))
    if not matches:
        raise LookupError(f"nothing at this path in the output {_shortened(output)}")
    return matches[0].value


def as_json_value(output: Any) -> Any:
    """What a path can walk: records become dicts, text is parsed if it is JSON and stays text if not."""
    if isinstance(output, BaseModel):
        return output.model_dump(mode="json")
    if isinstance(output, str):
        try:
            return parsed(output)
        except ValueError:
            return output
    return output


def answer_of(output: Any, path: JsonPath | None) -> Any:
    """What evaluators see: the value at the path, or the output itself: a chat's text, other records as JSON text."""
    if path is not None:
        return value_at(path, output)
    if isinstance(output, ChatResponse):
        return output.text
    return output.model_dump_json(indent=2) if isinstance(output, BaseModel) else output


def _shortened(output: Any, limit: int = 200) -> str:
    text = repr(output)
    return text if len(text) <= limit else f"{text[:limit]}…"

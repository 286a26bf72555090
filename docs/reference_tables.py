"""Tables of keys for the generated pages: types and defaults in words. Pure."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic_core import to_jsonable_python

from nat.registry.description import FieldDescription

_WORDS = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "True": "true",
    "False": "false",
    "Any": "anything",
    "JsonValue": "anything",
    "Path": "path",
    "SecretStr": "secret",
    "ComparableSecretStr": "secret",
    "SamplingInTraining": "mapping",
    "RayRollouts": "mapping",
    "TinkerLoRA": "mapping",
}
_REFERENCES = {
    "LLMRef": "key of `llms`",
    "UntrainedLLMRef": "key of `llms`",
    "TrainedLLMRef": "key of `llms`",
    "EvaluatorRef": "key of `eval.evaluators`",
    "TrainerRef": "key of `trainers`",
    "TrainerAdapterRef": "key of `trainer_adapters`",
    "TrajectoryBuilderRef": "key of `trajectory_builders`",
    "FunctionRef": "key of `functions`",
}


def table(fields: Iterable[FieldDescription]) -> Iterator[str]:
    """One row per key, required ones first; a default of several lines follows in a block of its own."""
    rows = sorted(fields, key=lambda field: "." in field.name or not field.required)
    yield "| key | type | default | what it does |"
    yield "|---|---|---|---|"
    for field in rows:
        yield f"| `{field.name}` | {type_in_words(field.type)} | {default_of(field)} | {cell(field.description)} |"
    for field in rows:
        if _is_long(field.default):
            yield f"\nThe default of `{field.name}`:\n\n```text\n{field.default}\n```"


def type_in_words(text: str) -> str:
    """A type in words."""
    text = re.sub(r"'([^']*)'", r"`\1`", text)
    text = re.sub(r"dict\[(\w+), (.+?)\](?=$| )", r"mapping from \1 to \2", text)
    text = re.sub(r"(?:list|tuple)\[(\w+|list\[\w+\])(?:, \.\.\.)?\]", r"list of \1", text)
    text = re.sub(r"tuple\[tuple\[str, str\], (?:\.\.\.|Ellipsis)\]", "list of pairs of text", text)
    text = re.sub(r"list\[(\w+)\]", r"lists of \1", text)
    text = re.sub(r"\b\w*(?:Config|Options|Args|BaseModel|Hyperparameters)\b", "mapping", text)
    text = re.sub(r"\b\w+Ref\b", lambda found: _REFERENCES[found[0]], text)
    return re.sub(r"\w+", lambda found: _WORDS.get(found[0], found[0]), text).replace(" | ", " or ")


def default_of(field: FieldDescription) -> str:
    """The default as JSON; `required` if there is none."""
    if field.required:
        return "**required**"
    if _is_long(field.default):
        return "see below"
    if field.default is None and "null" not in field.type:
        return ""
    return f"`{json.dumps(to_jsonable_python(field.default, fallback=str), ensure_ascii=False)}`"


def cell(text: str) -> str:
    """A text that may stand in a table."""
    return text.replace("|", "\\|")


def first_sentence(text: str) -> str:
    """Of a docstring or a description."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]


def _is_long(default: Any) -> bool:
    return isinstance(default, str) and "\n" in default

"""What a request or a configuration sets of a model's chat template and of the format of its answers."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, JsonValue

from nat.wire.json import parse_json

RESERVED = frozenset(
    (
        *("add_generation_prompt", "chat_template", "continue_final_message", "conversation", "conversations"),
        *("documents", "kwargs", "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict"),
        *("return_tensors", "sanitize_control_tokens", "self", "strftime_now", "tokenize", "tokenizer_kwargs", "tools"),
        *("truncation", "bos_token", "eos_token", "pad_token", "unk_token"),
    )
)
"""Names that are no variables of a template: arguments of its renderer, and what the tokenizer gives."""
NO_VARIABLE = "not a variable of a chat template but an argument of its renderer"
_LENGTH = 10_000
"""Characters of all variables as JSON: switches and short lists, not documents."""
_FILE_BYTES = 2**20


def _small(variables: dict[str, JsonValue]) -> dict[str, JsonValue]:
    length = len(json.dumps(variables))
    if length > _LENGTH:
        raise ValueError(f"the variables have {length} characters as JSON; at most {_LENGTH}")
    return variables


def _unreserved(variables: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if reserved := sorted(RESERVED & variables.keys()):
        raise ValueError(f"{', '.join(reserved)}: {NO_VARIABLE}")
    return variables


def _mapping(value: object) -> object:
    """A mapping as it is; a text is its JSON, as on a command line, or names a file that has it."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value if value.lstrip().startswith("{") else _file_text(Path(value)))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"expected a mapping, its JSON, or the path of a JSON file; {value[:80]!r}: {why}") from error


def _file_text(path: Path) -> str:
    """The text of a small file; reading a FIFO or a device would not end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a file")
    if (size := path.stat().st_size) > _FILE_BYTES:
        raise ValueError(f"the file has {size} bytes; at most {_FILE_BYTES}")
    return path.read_text(encoding="utf-8")


TemplateVariables = Annotated[dict[str, JsonValue], AfterValidator(_small)]
"""Variables that a request sets; the server knows which names its model's tokenizer reserves."""
ConfiguredVariables = Annotated[TemplateVariables, AfterValidator(_unreserved), BeforeValidator(_mapping)]
ResponseTemplate = Annotated[dict[str, Any], BeforeValidator(_mapping)]
"""The format of answers, as transformers reads it in a `tokenizer_config.json`."""

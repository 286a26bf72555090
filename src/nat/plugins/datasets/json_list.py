"""JSON: a list of objects."""

from json import JSONDecodeError
from pathlib import Path
from typing import Any

from nat.errors import DatasetError
from nat.plugins.datasets.json_text import parse_json, type_name
from nat.plugins.datasets.text_file import raise_findings, read_text


def read_json_list(path: Path) -> list[dict[str, Any]]:
    """Every object of the file's one list."""
    try:
        value = parse_json(read_text(path))
    except JSONDecodeError as error:
        # A second document in the file is what JSON lines look like to a JSON parser.
        hint = "If each line is an object, it is `_type: jsonl`." if error.msg == "Extra data" else None
        place = f"line {error.lineno}, column {error.colno}"
        raise DatasetError(f"{path}, {place}: not JSON: {error.msg}", hint=hint) from error
    except DatasetError:
        raise
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    if not isinstance(value, list):
        raise DatasetError(
            f"{path} holds {type_name(value)} where a list of objects was expected",
            hint="Wrap the rows in [ ].",
        )
    wrong = [(number, row) for number, row in enumerate(value, start=1) if not isinstance(row, dict)]
    raise_findings(path, [f"row {n}: {type_name(row)} where an object was expected" for n, row in wrong])
    return value

"""JSON lines: one object per line; blank lines are skipped."""

from pathlib import Path
from typing import Any

from nat.plugins.datasets.json_text import describe, parse_json, type_name
from nat.plugins.datasets.text_file import raise_findings, read_text


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """Every line's object; lines end at a newline only, so U+2028 inside a string stays inside."""
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = parse_json(line)
        except ValueError as error:
            findings.append(f"line {number}: {describe(error)}")
            continue
        if isinstance(value, dict):
            rows.append(value)
        else:
            findings.append(f"line {number}: {type_name(value)} where an object was expected")
    raise_findings(path, findings, hint="Each line holds one JSON object; a JSON list is `_type: json`.")
    return rows

"""CSV: a header and rows of cells; every cell stays the text that it is."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nat.errors import DatasetError
from nat.plugins.datasets.text_file import raise_findings, read_text


def read_csv_table(path: Path) -> list[dict[str, Any]]:
    """One row per record, keyed by the header; an empty cell is the empty text, `0042` stays `0042`."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    previous_limit = csv.field_size_limit(sys.maxsize)  # the limit is process-wide; a document may be one cell
    try:
        return _rows(path, ((reader.line_num, cells) for cells in reader))
    except csv.Error as error:
        raise DatasetError(f"{path}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(previous_limit)


def _rows(path: Path, records: Iterator[tuple[int, list[str]]]) -> list[dict[str, Any]]:
    """The records after the header as rows; each record comes with the number of its last line."""
    _, header = next(records, (0, []))
    if not header:
        raise DatasetError(f"{path} has no header", hint="The first line names the columns.")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DatasetError(f"{path}: the header names {', '.join(map(repr, twice))} more than once")
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    for line, cells in records:
        if len(cells) == len(header):
            rows.append(dict(zip(header, cells, strict=True)))
        elif cells:
            findings.append(f"line {line}: {len(cells)} cells for {len(header)} columns")
    raise_findings(path, findings, hint="A cell with a comma or a line break needs double quotes around it.")
    return rows

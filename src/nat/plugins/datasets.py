"""The built-in dataset formats: a JSON list, JSON lines, CSV, parquet, Excel, and a function that reads any other.

Errors name the line of every broken row.

A format's name is also its file suffix, which `--dataset` uses. `nat.eval.dataset` applies ids, keys and filters.
"""

import csv
import gzip
import io
import json
import math
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing
from json import JSONDecodeError
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from nat.builder.builder import EvalBuilder
from nat.builder.dataset_loader import DatasetLoaderInfo, LoadFn
from nat.data_models.dataset_handler import (
    EvalDatasetCsvConfig,
    EvalDatasetCustomConfig,
    EvalDatasetJsonConfig,
    EvalDatasetJsonlConfig,
    EvalDatasetParquetConfig,
    EvalDatasetXlsConfig,
)
from nat.data_models.evaluate import DatasetBaseConfig
from nat.errors import DatasetError, did_you_mean_path
from nat.registry.decorators import register_dataset_loader
from nat.registry.imports import function_at
from nat.wire.extras import install_hint

MAX_FINDINGS = 5
"""Number of broken rows that an error lists; the others are counted."""
_GZIP = b"\x1f\x8b"


def read_text(path: Path) -> str:
    """The text of a file, which may be compressed by gzip, without its byte order mark; line ends are unchanged."""
    _check_exists(path)
    data = path.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(_GZIP) else data
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DatasetError(f"{path}, line {line}, is not UTF-8: {error}", hint="Save the file as UTF-8.") from error


def _check_exists(path: Path) -> None:
    if not path.is_file():
        seen = "is a directory" if path.is_dir() else f"does not exist{did_you_mean_path(path)}"
        raise DatasetError(
            f"dataset file '{path}' {seen}",
            hint=f"Name a file; relative paths start at the working directory, {Path.cwd()}.",
        )


def raise_findings(path: Path, findings: list[str], *, hint: str | None = None) -> None:
    """Raise one error for all broken places of a file; do nothing if there are none."""
    if not findings:
        return
    listed = [f"  - {finding}" for finding in findings[:MAX_FINDINGS]]
    if len(findings) > MAX_FINDINGS:
        listed.append(f"  - … and {len(findings) - MAX_FINDINGS} more")
    raise DatasetError(f"{path} cannot be read:\n" + "\n".join(listed), hint=hint)


def parse_json(text: str) -> Any:
    """The value of `text`; ValueError for NaN, which is not JSON, and for numbers beyond a float (1e999)."""
    try:
        return json.loads(text, parse_float=_number, parse_int=_number, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("the value is nested too deeply") from error


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large; write it as text")
    return int(text) if text.lstrip("-").isdigit() else number


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON; write null or leave the key out")


def type_name(value: object) -> str:
    """The JSON type of a parsed value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def read_json(path: Path) -> list[dict[str, Any]]:
    """Read a file with one list of objects."""
    text = read_text(path)
    try:
        value = parse_json(text)
    except JSONDecodeError as error:
        # To a JSON parser, the second line of JSON lines is extra data.
        hint = "If each line is an object, it is `_type: jsonl`." if error.msg == "Extra data" else None
        place = f"line {error.lineno}, column {error.colno}"
        raise DatasetError(f"{path}, {place}: not JSON: {error.msg}", hint=hint) from error
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    if not isinstance(value, list):
        keys = _place_of_list(value)
        hint = f"The list is under {keys}: take it out, as by `jq .{keys}`." if keys else "Wrap the rows in [ ]."
        raise DatasetError(f"{path} holds {type_name(value)} where a list of objects was expected", hint=hint)
    wrong = [(number, row) for number, row in enumerate(value, start=1) if not isinstance(row, dict)]
    raise_findings(path, [f"row {n}: {type_name(row)} where an object was expected" for n, row in wrong])
    return value


def _place_of_list(value: Any) -> str | None:
    """The keys of the first list inside an object, with dots between them; None if it has none."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, list):
            return str(key)
        if place := _place_of_list(inner):
            return f"{key}.{place}"
    return None


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read one object per line, skipping blank lines; U+2028 ends no line, so strings may contain it."""
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    for number, line in enumerate(re.split("\r\n?|\n", read_text(path)), start=1):
        if not line.strip():
            continue
        if line.strip() in ("{", "["):
            findings.append(f"line {number}: its object goes on in the next lines; write each on one, as `jq -c` does")
            break
        try:
            value = parse_json(line)
        except ValueError as error:
            at = (
                f", column {error.colno}: not JSON: {error.msg}" if isinstance(error, JSONDecodeError) else f": {error}"
            )
            findings.append(f"line {number}{at}")
            continue
        if isinstance(value, dict):
            rows.append(value)
        else:
            findings.append(f"line {number}: {type_name(value)} where an object was expected")
    raise_findings(path, findings, hint="Each line holds one JSON object; a JSON list is `_type: json`.")
    return rows


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Read one row per record, keyed by the header; every cell is text: `0042` stays `0042`."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    previous_limit = csv.field_size_limit(sys.maxsize)  # the limit is process-wide; a document may be one cell
    try:
        return _csv_rows(path, ((reader.line_num, cells) for cells in reader))
    except csv.Error as error:
        raise DatasetError(f"{path}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(previous_limit)


def _csv_rows(path: Path, records: Iterator[tuple[int, list[str]]]) -> list[dict[str, Any]]:
    """The records after the header as rows; each record has the number of its last line."""
    _, header = next(records, (0, []))
    _check_header(path, header)
    rows: list[dict[str, Any]] = []
    findings: list[str] = []
    for line, cells in records:
        if len(cells) == len(header):
            rows.append(dict(zip(header, cells, strict=True)))
        elif cells:
            findings.append(f"line {line}: {len(cells)} cells for {len(header)} columns")
    raise_findings(path, findings, hint="A cell with a comma or a line break needs double quotes around it.")
    return rows


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise DatasetError(f"{path} has no header", hint="The first line names the columns.")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DatasetError(
            f"{path}: the header names {', '.join(map(repr, twice))} more than once",
            hint="Rename or remove the others.",
        )


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Read one row per record, with the types that the file declares; needs pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise DatasetError(
            f"dataset '{path}' is parquet, and pyarrow is not installed",
            hint=install_hint("parquet"),
        ) from error
    _check_exists(path)
    try:
        table = parquet.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path} is not parquet, or is cut off: {error}") from error
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def read_xls(path: Path) -> list[dict[str, Any]]:
    """Read the first sheet of an Excel workbook, with the types of its cells; needs openpyxl."""
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise DatasetError(
            f"dataset '{path}' is an Excel workbook, and openpyxl is not installed", hint=install_hint("xls")
        ) from error
    _check_exists(path)
    try:
        workbook = load_workbook(path, read_only=True, data_only=True)
    except (InvalidFileException, BadZipFile, KeyError, OSError) as error:
        raise DatasetError(f"{path} is not an Excel workbook (.xlsx)", hint="Save it as .xlsx, or as CSV.") from error
    with closing(workbook):
        records = workbook.worksheets[0].iter_rows(values_only=True)
        columns = {place: str(cell) for place, cell in enumerate(next(records, ())) if cell is not None}
        _check_header(path, list(columns.values()))
        filled = (dict(enumerate(record)) for record in records if any(cell is not None for cell in record))
        return [{name: record.get(place) for place, name in columns.items()} for record in filled]


def _register(config_type: type[DatasetBaseConfig], read: LoadFn, description: str) -> None:
    @register_dataset_loader(config_type=config_type)
    async def loader(config: DatasetBaseConfig, _builder: EvalBuilder) -> AsyncGenerator[DatasetLoaderInfo, None]:
        yield DatasetLoaderInfo(config=config, load_fn=read, description=description)


_register(EvalDatasetJsonConfig, read_json, "JSON list of objects")
_register(EvalDatasetJsonlConfig, read_jsonl, "One JSON object per line")
_register(EvalDatasetCsvConfig, read_csv, "CSV, every cell as text")
_register(EvalDatasetParquetConfig, read_parquet, "Parquet table")
_register(EvalDatasetXlsConfig, read_xls, "First sheet of an Excel workbook")


@register_dataset_loader(config_type=EvalDatasetCustomConfig)
async def custom_loader(
    config: EvalDatasetCustomConfig, _builder: EvalBuilder
) -> AsyncGenerator[DatasetLoaderInfo, None]:
    """A function of the user's."""
    function = function_at(config.function, file_path="", **config.kwargs)

    def load(path: Path) -> Any:
        return function(file_path=path, **config.kwargs)

    yield DatasetLoaderInfo(config=config, load_fn=load, description=config.function)

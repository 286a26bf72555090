"""Write rows as JSON lines or parquet, a few at a time; an unfinished file never gets the name."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from nat.errors import StorageError
from nat.files import replacing
from nat.secrets import known_secrets
from nat.trajectory_files.formats import Kind, Row
from nat.wire.extras import install_hint, missing_packages

if TYPE_CHECKING:  # the extra `parquet`
    import pyarrow as pa

SUFFIXES = (".jsonl", ".parquet")
_BATCH_CHARS = 2**24
"""Rows of so many characters become one row group of a parquet file."""


class RowWriter(Protocol):
    """A file that is being written."""

    def write(self, row: Row) -> None:
        """Add a row."""

    def finish(self) -> None:
        """Write what is still in memory."""


@contextmanager
def row_writer(path: Path, columns: Mapping[str, Kind], *, force: bool) -> Iterator[RowWriter]:
    """Open a file that gets its name when the block succeeds; its suffix chooses the format.

    Raises:
        StorageError: the suffix is unknown, the file exists and `force` is not set, or pyarrow is missing.

    """
    check_target(path, force=force)
    with replacing(path) as file:
        writer = _ParquetRows(file, columns) if path.suffix == ".parquet" else _JsonLines(file)
        yield writer
        writer.finish()


def check_target(path: Path, *, force: bool) -> None:
    """Raise StorageError if the file cannot be written under this name."""
    if path.suffix not in SUFFIXES:
        raise StorageError(
            f"{path} ends with {path.suffix or 'no suffix'}; trajectories are written as {' or '.join(SUFFIXES)}",
            hint="give the file one of these suffixes",
        )
    if path.is_dir():
        raise StorageError(f"{path} is a folder", hint="give the name of a file in it")
    if path.exists() and not force:
        raise StorageError(f"{path} exists already", hint="give another name, or --force to replace it")
    if path.suffix == ".parquet" and missing_packages(["pyarrow"]):
        raise StorageError(
            f"{path} cannot be written: parquet files need the package `pyarrow`, which is not installed",
            hint=f"{install_hint('parquet')}; or write .jsonl",
        )


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: Row) -> None:
        self._file.write(_json(known_secrets.redact_tree(row)).encode() + b"\n")

    def finish(self) -> None:
        pass


class _ParquetRows:
    """Arguments of tool calls have Arrow's type for JSON: `datasets` reads objects, and pandas reads text."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, Kind]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._messages = [name for name, kind in columns.items() if kind == "messages"]
        self._plain, self._typed = _schema(columns, pa.string()), _schema(columns, pa.json_())
        self._writer = pq.ParquetWriter(file, self._typed)
        self._rows: list[Row] = []
        self._chars = 0

    def write(self, row: Row) -> None:
        clean = known_secrets.redact_tree(row)
        self._chars += len(_json(clean))
        self._rows.append(clean | {name: [_with_text(each) for each in clean[name]] for name in self._messages})
        if self._chars >= _BATCH_CHARS:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._plain).cast(self._typed))
        self._rows, self._chars = [], 0


def _schema(columns: Mapping[str, Kind], arguments: "pa.DataType") -> "pa.Schema":
    import pyarrow as pa

    text = pa.string()
    function = pa.struct([("name", text), ("arguments", arguments)])
    call = pa.struct([("id", text), ("type", text), ("function", function)])
    fields = [("role", text), ("content", text), ("reasoning_content", text), ("tool_calls", pa.list_(call))]
    message = pa.struct([*fields, ("tool_call_id", text), ("name", text)])
    types = {
        "text": text,
        "messages": pa.list_(message),
        "number": pa.float64(),
        "count": pa.int64(),
        "flag": pa.bool_(),
        "counts": pa.list_(pa.int64()),
        "numbers": pa.list_(pa.float64()),
    }
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])


def _with_text(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the arguments of its tool calls as JSON."""
    if "tool_calls" not in message:
        return message
    calls = [
        call | {"function": call["function"] | {"arguments": _json(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return message | {"tool_calls": calls}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)

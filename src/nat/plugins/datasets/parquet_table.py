"""Parquet, by pyarrow, which is an extra."""

from pathlib import Path
from typing import Any

from nat.errors import DatasetError
from nat.wire.extras import install_hint


def read_parquet_table(path: Path) -> list[dict[str, Any]]:
    """One row per record with the types that the file declares; a text column stays text."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - heavy and optional
        from pyarrow import parquet  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise DatasetError(
            f"dataset '{path}' is parquet, and pyarrow is not installed",
            hint=install_hint("parquet"),
        ) from error
    if not path.is_file():
        raise DatasetError(f"dataset file '{path}' does not exist")
    try:
        table = parquet.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{path} cannot be read as parquet: {error}") from error
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows

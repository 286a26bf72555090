"""The configs of the built-in dataset formats; `nat.plugins.datasets` reads them."""

from typing import Any, TypeVar

from pydantic import Field

from nat.data_models.evaluate import (
    DatasetBaseConfig,
    EvalDatasetStructureConfig,
    EvalFilterConfig,
    EvalFilterEntryConfig,
)

__all__ = [
    "EvalDatasetBaseConfig",
    "EvalDatasetBaseConfigT",
    "EvalDatasetCsvConfig",
    "EvalDatasetCustomConfig",
    "EvalDatasetJsonConfig",
    "EvalDatasetJsonlConfig",
    "EvalDatasetParquetConfig",
    "EvalDatasetStructureConfig",
    "EvalDatasetXlsConfig",
    "EvalFilterConfig",
    "EvalFilterEntryConfig",
]

EvalDatasetBaseConfig = DatasetBaseConfig
EvalDatasetBaseConfigT = TypeVar("EvalDatasetBaseConfigT", bound=DatasetBaseConfig)


class EvalDatasetJsonConfig(DatasetBaseConfig, name="json"):
    """A JSON list of objects."""


class EvalDatasetJsonlConfig(DatasetBaseConfig, name="jsonl"):
    """One JSON object per line."""


class EvalDatasetCsvConfig(DatasetBaseConfig, name="csv"):
    """A header and rows of cells; every cell is text."""


class EvalDatasetParquetConfig(DatasetBaseConfig, name="parquet"):
    """A parquet table; needs the extra `parquet`."""


class EvalDatasetXlsConfig(DatasetBaseConfig, name="xls"):
    """The first sheet of an Excel workbook (`.xlsx`), whose first row names the columns; needs the extra `xls`."""


class EvalDatasetCustomConfig(DatasetBaseConfig, name="custom"):
    """A file that a function of yours reads."""

    function: str
    """The function, as `file.py:function` or `module.function`. It gets `file_path` and `kwargs`, and returns rows, a
    DataFrame or an EvalInput."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the function."""

"""Register the built-in formats; each type's name is also its file suffix, which `--dataset` uses."""

from collections.abc import AsyncGenerator

from nat.builder.builder import EvalBuilder
from nat.builder.dataset_loader import DatasetLoaderInfo
from nat.data_models.evaluate import DatasetBaseConfig
from nat.plugins.datasets.readers import read_csv, read_json, read_jsonl, read_parquet
from nat.registry.decorators import register_dataset_loader


class JsonDatasetConfig(DatasetBaseConfig, name="json"):
    """A JSON list of objects."""


class JsonlDatasetConfig(DatasetBaseConfig, name="jsonl"):
    """One JSON object per line."""


class CsvDatasetConfig(DatasetBaseConfig, name="csv"):
    """A header and rows of cells; every cell is text."""


class ParquetDatasetConfig(DatasetBaseConfig, name="parquet"):
    """A parquet table; needs the extra `parquet`."""


@register_dataset_loader(config_type=JsonDatasetConfig)
async def json_dataset(config: JsonDatasetConfig, _builder: EvalBuilder) -> AsyncGenerator[DatasetLoaderInfo, None]:
    """`_type: json`."""
    yield DatasetLoaderInfo(config=config, load_fn=read_json, description="JSON list of objects")


@register_dataset_loader(config_type=JsonlDatasetConfig)
async def jsonl_dataset(config: JsonlDatasetConfig, _builder: EvalBuilder) -> AsyncGenerator[DatasetLoaderInfo, None]:
    """`_type: jsonl`."""
    yield DatasetLoaderInfo(config=config, load_fn=read_jsonl, description="One JSON object per line")


@register_dataset_loader(config_type=CsvDatasetConfig)
async def csv_dataset(config: CsvDatasetConfig, _builder: EvalBuilder) -> AsyncGenerator[DatasetLoaderInfo, None]:
    """`_type: csv`."""
    yield DatasetLoaderInfo(config=config, load_fn=read_csv, description="CSV, every cell as text")


@register_dataset_loader(config_type=ParquetDatasetConfig)
async def parquet_dataset(
    config: ParquetDatasetConfig, _builder: EvalBuilder
) -> AsyncGenerator[DatasetLoaderInfo, None]:
    """`_type: parquet`."""
    yield DatasetLoaderInfo(config=config, load_fn=read_parquet, description="Parquet table")

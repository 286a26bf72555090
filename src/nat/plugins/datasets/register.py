"""Register the built-in formats; each type's name is also its file suffix, which `--dataset` uses."""

from collections.abc import AsyncGenerator

from nat.builder.builder import EvalBuilder
from nat.builder.dataset_loader import DatasetLoaderInfo, LoadFn
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


def _register(config_type: type[DatasetBaseConfig], read: LoadFn, description: str) -> None:
    @register_dataset_loader(config_type=config_type)
    async def loader(config: DatasetBaseConfig, _builder: EvalBuilder) -> AsyncGenerator[DatasetLoaderInfo, None]:
        yield DatasetLoaderInfo(config=config, load_fn=read, description=description)


_register(JsonDatasetConfig, read_json, "JSON list of objects")
_register(JsonlDatasetConfig, read_jsonl, "One JSON object per line")
_register(CsvDatasetConfig, read_csv, "CSV, every cell as text")
_register(ParquetDatasetConfig, read_parquet, "Parquet table")

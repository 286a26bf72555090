"""Find the dataset of an evaluation, and read it with the loader of its type."""

from pathlib import Path

from nat.builder.builder import Builder
from nat.builder.dataset_loader import DatasetLoaderInfo
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInputItem
from nat.errors import DatasetError
from nat.eval.dataset import eval_items
from nat.registry.catalog import current_catalog


async def load_items(config: DatasetBaseConfig, builder: Builder) -> list[EvalInputItem]:
    """Read the dataset's file into the items of an evaluation."""
    if config.file_path is None:
        raise DatasetError("eval.general.dataset has no file_path", hint="Name the file there, or give --dataset.")
    component = current_catalog().component_of(ComponentGroup.DATASETS, config)
    async with component.build_fn(config, builder) as loader:
        if not isinstance(loader, DatasetLoaderInfo):
            raise DatasetError(
                f"the dataset loader '{component.full_type}' yielded {type(loader).__name__},"
                " where a DatasetLoaderInfo was expected"
            )
        path = Path(config.file_path)
        return eval_items(loader.load_fn(path), config, source=str(path))


def select_dataset(configured: DatasetBaseConfig | None, file: str | None) -> DatasetBaseConfig:
    """The configured dataset; or `file` with the configured keys, in the format of its suffix."""
    if file is None:
        if configured is None:
            raise DatasetError("there is no dataset", hint="Add eval.general.dataset to the YAML, or give --dataset.")
        return configured
    config_type = _type_of(Path(file), configured)
    kept = {} if configured is None else {name: getattr(configured, name) for name in _shared_keys(configured)}
    return config_type(file_path=file, **kept)


def _shared_keys(configured: DatasetBaseConfig) -> set[str]:
    """Keys that are set in the YAML and apply to every format."""
    return configured.model_fields_set & set(DatasetBaseConfig.model_fields) - {"type", "file_path"}


def _type_of(file: Path, configured: DatasetBaseConfig | None) -> type[DatasetBaseConfig]:
    """The dataset type named like the file's suffix; without one, the configured type."""
    formats = current_catalog().components[ComponentGroup.DATASETS]
    suffix = file.suffix.removeprefix(".").lower()
    names = formats.names()
    if suffix in names:
        found = formats.get(suffix).config_type
        assert issubclass(found, DatasetBaseConfig)
        return found
    if configured is not None:
        return type(configured)
    raise DatasetError(
        f"'{file}': no dataset format is named by its suffix '{file.suffix}'",
        hint=f"The formats are {', '.join(names)}; name one as eval.general.dataset._type.",
    )

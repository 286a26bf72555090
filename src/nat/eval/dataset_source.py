"""Find the dataset of an evaluation, and read it with the loader of its type."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nat.builder.builder import Builder
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.dataset_handler import EvalDatasetCustomConfig
from nat.data_models.evaluate import DatasetBaseConfig, EvalConfig
from nat.data_models.evaluate_runtime import Examples
from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.errors import ANY_FAILURE, DatasetError, NatError, describe_error
from nat.eval.dataset import Row, check_expected_answers, eval_items
from nat.files import shown
from nat.registry.catalog import current_catalog

logger = logging.getLogger(__name__)


async def read_examples(config: EvalConfig, file: str | None, builder: Builder) -> Examples:
    """The examples of the configured dataset or of `file`, with the answers that the evaluators need.

    Raises:
        DatasetError: there is no dataset, it cannot be read, or it lacks the answers.

    """
    dataset = select_dataset(config.general.dataset, file)
    items = await load_items(dataset, builder)
    check_expected_answers(items, dataset, config.evaluators)
    return Examples(dataset, items)


async def load_items(config: DatasetBaseConfig, builder: Builder) -> list[EvalInputItem]:
    """Read the dataset's file into the items of an evaluation; a failure of a loader is a DatasetError."""
    if config.file_path is None:
        raise DatasetError("eval.general.dataset has no file_path", hint="Name the file there, or give --dataset.")
    component = current_catalog().component_of(ComponentGroup.DATASETS, config)
    path = shown(Path(config.file_path))
    try:
        async with component.build_fn(config, builder) as loader:
            return eval_items(rows_of(loader.load_fn(path), config, source=str(path)), config, source=str(path))
    except DatasetError as error:
        if _named_by(path) in (None, type(config)) or isinstance(config, EvalDatasetCustomConfig):
            raise
        hint = f"The file's name says {path.suffix}: name its format as eval.general.dataset._type."
        raise DatasetError(error.message, hint=hint) from error
    except NatError:
        raise
    except ANY_FAILURE as error:  # the boundary of a plug-in's loader
        logger.debug("the dataset loader '%s' failed", component.full_type, exc_info=error)
        raise DatasetError(
            f"{path}: the dataset loader '{component.full_type}' failed: {describe_error(error)}",
            hint="`nat --log-level debug …` prints the traceback",
        ) from error


def rows_of(loaded: Any, config: DatasetBaseConfig, *, source: str) -> Sequence[Row]:
    """What a loader returned, as rows; an empty cell of a DataFrame is None, and numbers are Python's."""
    if isinstance(loaded, EvalInput):
        keys = config.structure
        loaded = [
            {
                **(item.full_dataset_entry if isinstance(item.full_dataset_entry, Mapping) else {}),
                config.id_key: item.id,
                keys.question_key: item.input_obj,
                keys.answer_key: item.expected_output_obj,
                keys.expected_trajectory_key: item.expected_trajectory,
            }
            for item in loaded.eval_input_items
        ]
    elif any(each.__module__.startswith("pandas.") for each in type(loaded).__mro__):  # without importing it
        loaded = loaded.astype(object).where(loaded.notna(), None).to_dict("records")
    if not isinstance(loaded, Iterable) or isinstance(loaded, str | bytes | Mapping):
        raise DatasetError(
            f"{source}: the dataset loader returned {type(loaded).__name__}",
            hint="return a list of rows, each a mapping from column to value, a DataFrame or an EvalInput",
        )
    rows = list(loaded)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DatasetError(
                f"{source}: row {number} of the dataset loader is {type(row).__name__}",
                hint="let each row be a mapping from column to value",
            )
    return rows


def select_dataset(configured: DatasetBaseConfig | None, file: str | None) -> DatasetBaseConfig:
    """The configured dataset; or `file` with the configured keys, in the format of its suffix."""
    if file is None:
        if configured is None:
            raise DatasetError("there is no dataset", hint="Add eval.general.dataset to the YAML, or give --dataset.")
        return configured
    named = _named_by(Path(file))
    if configured is not None and (
        named in (None, type(configured)) or isinstance(configured, EvalDatasetCustomConfig)  # a function reads any
    ):
        return configured.model_copy(update={"file_path": file})
    if named is None:
        raise DatasetError(
            f"'{file}': no dataset format is named by its suffix '{Path(file).suffix}'",
            hint=f"The formats are {', '.join(_formats())}; name one as eval.general.dataset._type.",
        )
    given = set() if configured is None else configured.model_fields_set
    shared = given & set(DatasetBaseConfig.model_fields) - {"type", "file_path"}  # apply to every format
    return named(file_path=file, **{name: getattr(configured, name) for name in shared})


def _named_by(file: Path) -> type[DatasetBaseConfig] | None:
    """The dataset type named like the file's suffix, before `.gz`; None if there is none."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.removeprefix(".").lower().replace("xlsx", "xls")
    return _formats().get(suffix)


def _formats() -> dict[str, type[Any]]:
    """The dataset types by name, without the one that needs further keys."""
    known = current_catalog().components[ComponentGroup.DATASETS]
    return {name: known.get(name).config_type for name in known.names() if name != "custom"}

"""What a dataset loader returns, as rows: any iterable of mappings, a DataFrame of pandas, or an EvalInput."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvalInput, EvalInputItem
from nat.errors import DatasetError

Row = Mapping[str, Any]


@runtime_checkable
class DataFrame(Protocol):
    """The methods of a pandas DataFrame that are needed here; pandas itself is not imported."""

    def astype(self, dtype: Any) -> Any: ...

    def notna(self) -> Any: ...

    def where(self, condition: Any, other: Any) -> Any: ...

    def to_dict(self, orient: Any) -> Any: ...


def rows_of(loaded: Any, config: DatasetBaseConfig, *, source: str) -> Sequence[Row]:
    """The rows; an empty cell of a DataFrame is None, and numbers are Python's."""
    if isinstance(loaded, EvalInput):
        loaded = [_row(item, config) for item in loaded.eval_input_items]
    elif isinstance(loaded, DataFrame):
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


def _row(item: EvalInputItem, config: DatasetBaseConfig) -> Row:
    """The item's own row, with its fields under the names that the dataset's keys give them."""
    keys = config.structure
    entry = item.full_dataset_entry
    return {
        **(entry if isinstance(entry, Mapping) else {}),
        config.id_key: item.id,
        keys.question_key: item.input_obj,
        keys.answer_key: item.expected_output_obj,
        keys.expected_trajectory_key: item.expected_trajectory,
    }

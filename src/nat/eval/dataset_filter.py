"""Keep the rows that a filter admits; pure."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from nat.data_models.evaluate import EvalFilterConfig


def admits(config: EvalFilterConfig, row: Mapping[str, Any]) -> bool:
    """True if the row matches every column of the allow list and no column of the deny list."""
    allowed = config.allowlist.field if config.allowlist is not None else {}
    denied = config.denylist.field if config.denylist is not None else {}
    return all(_matches(row.get(column), values) for column, values in allowed.items()) and not any(
        _matches(row.get(column), values) for column, values in denied.items()
    )


def unknown_columns(config: EvalFilterConfig, columns: set[str]) -> list[str]:
    """Columns that the filter names and no row has; a filter on them would keep or drop everything."""
    lists = [part.field for part in (config.allowlist, config.denylist) if part is not None]
    return sorted({column for fields in lists for column in fields} - columns)


def _matches(cell: Any, values: list[Any]) -> bool:
    """True if the cell is one of the values; as text, so that YAML's 42 admits a CSV's `42`."""
    return any(cell is None if value is None else _like(cell, value) for value in values)


def _like(cell: Any, value: Any) -> bool:
    return cell is not None and (cell == value or fnmatchcase(str(cell), str(value)))

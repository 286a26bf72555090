"""The result of a dataset loader's build function."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nat.data_models.evaluate import DatasetBaseConfig

LoadFn = Callable[..., Any]
"""Reads a file, given its Path, into rows: mappings from column to value, a DataFrame, or an EvalInput."""


@dataclass
class DatasetLoaderInfo:
    """Reads files of one format; ids, keys and filters are applied later, by `nat.eval.dataset`."""

    config: DatasetBaseConfig
    load_fn: LoadFn
    description: str = ""

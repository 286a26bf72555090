"""The result of a dataset loader's build function."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nat.data_models.evaluate import DatasetBaseConfig

LoadFn = Callable[[Path], list[dict[str, Any]]]
"""Reads a file into rows, each a mapping from column to value."""


@dataclass(kw_only=True)
class DatasetLoaderInfo:
    """Reads files of one format; ids, keys and filters are applied later, by `nat.eval.dataset`."""

    config: DatasetBaseConfig
    load_fn: LoadFn
    description: str = ""

"""What a dataset loader's build function yields."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nat.data_models.evaluate import DatasetBaseConfig

LoadFn = Callable[[Path], list[dict[str, Any]]]
"""From a file to its rows, each a mapping from column to value."""


@dataclass(kw_only=True)
class DatasetLoaderInfo:
    """How a file of this format becomes rows; ids, keys and filters are the evaluation's business."""

    config: DatasetBaseConfig
    load_fn: LoadFn
    description: str = ""

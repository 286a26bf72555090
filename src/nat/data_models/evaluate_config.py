"""Alias for plug-ins: the code is in `nat.data_models.evaluate`."""

from nat.data_models.evaluate import (
    DatasetBaseConfig,
    EvalConfig,
    EvalDatasetStructureConfig,
    EvalGeneralConfig,
    EvalOutputConfig,
)

__all__ = [
    "DatasetBaseConfig",
    "EvalConfig",
    "EvalDatasetStructureConfig",
    "EvalGeneralConfig",
    "EvalOutputConfig",
]

"""Alias for plug-ins: the code is in `nat.data_models.evaluate`."""

from nat.data_models.evaluate import DatasetBaseConfig as DatasetBaseConfig
from nat.data_models.evaluate import EvalConfig as EvalConfig
from nat.data_models.evaluate import EvalDatasetStructureConfig as EvalDatasetStructureConfig
from nat.data_models.evaluate import EvalGeneralConfig as EvalGeneralConfig
from nat.data_models.evaluate import EvalOutputConfig as EvalOutputConfig

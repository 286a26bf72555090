"""Alias for plug-ins: the code is in `nat.data_models.intermediate_step`."""

from nat.data_models.intermediate_step import TokenUsageBaseModel as TokenUsageBaseModel

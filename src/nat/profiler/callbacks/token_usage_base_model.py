"""The import path of plug-ins for `nat.data_models.intermediate_step`."""

from nat.data_models.intermediate_step import TokenUsageBaseModel

__all__ = ["TokenUsageBaseModel"]

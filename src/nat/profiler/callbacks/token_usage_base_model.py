"""The import path of plug-ins for `nat.data_models.token_usage`."""

from nat.data_models.token_usage import TokenUsageBaseModel

__all__ = ["TokenUsageBaseModel"]

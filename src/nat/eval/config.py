"""Alias for plug-ins: the code is in `nat.data_models.evaluate_runtime`."""

from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput

__all__ = ["EvaluationRunConfig", "EvaluationRunOutput"]

"""The records of an evaluation, under the name that the guide imports."""

from nat.data_models.evaluate_runtime import EvaluationRunConfig, EvaluationRunOutput

__all__ = ["EvaluationRunConfig", "EvaluationRunOutput"]

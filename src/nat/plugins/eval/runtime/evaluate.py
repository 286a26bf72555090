"""Alias for plug-ins: the code is in `nat.eval.evaluate`."""

from nat.eval.evaluate import EvaluationRun

__all__ = ["EvaluationRun"]

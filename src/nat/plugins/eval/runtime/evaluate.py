"""`nat.eval.evaluate` under its later name."""

from nat.eval.evaluate import EvaluationRun

__all__ = ["EvaluationRun"]

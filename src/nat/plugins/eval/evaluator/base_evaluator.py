"""`nat.eval.evaluator.base_evaluator` under its later name."""

from nat.eval.evaluator.base_evaluator import BaseEvaluator

__all__ = ["BaseEvaluator"]

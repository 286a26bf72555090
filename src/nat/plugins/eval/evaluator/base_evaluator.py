"""Alias for plug-ins: the code is in `nat.eval.evaluator.base_evaluator`."""

from nat.eval.evaluator.base_evaluator import BaseEvaluator

__all__ = ["BaseEvaluator"]

"""Alias for plug-ins: the code is in `nat.data_models.evaluator`."""

from nat.data_models.evaluator import EvalOutput, EvalOutputItem

__all__ = ["EvalOutput", "EvalOutputItem"]

"""Alias for plug-ins: the code is in `nat.data_models.evaluator`."""

from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem

__all__ = ["EvalInput", "EvalInputItem", "EvalOutput", "EvalOutputItem"]

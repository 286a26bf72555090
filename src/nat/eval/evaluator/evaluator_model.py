"""The evaluators' records, under the name that the guide imports."""

from nat.data_models.evaluator import EvalInput, EvalInputItem, EvalOutput, EvalOutputItem

__all__ = ["EvalInput", "EvalInputItem", "EvalOutput", "EvalOutputItem"]

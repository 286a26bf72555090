"""`nat.eval.evaluator.evaluator_model` under its later name."""

from nat.data_models.evaluator import EvalOutput, EvalOutputItem

__all__ = ["EvalOutput", "EvalOutputItem"]

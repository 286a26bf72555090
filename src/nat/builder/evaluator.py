"""The result of an evaluator's build function."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nat.data_models.evaluator import EvalInput, EvalOutput, EvaluatorBaseConfig

EvaluateFn = Callable[[EvalInput], Awaitable[EvalOutput]]


@dataclass(kw_only=True)
class EvaluatorInfo:
    """An evaluator and its config."""

    config: EvaluatorBaseConfig
    evaluate_fn: EvaluateFn
    description: str = ""

"""What an evaluator's build function yields."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nat.data_models.evaluator import EvalInput, EvalOutput, EvaluatorBaseConfig

EvaluateFn = Callable[[EvalInput], Awaitable[EvalOutput]]


@dataclass(kw_only=True)
class EvaluatorInfo:
    """An evaluator with the config it was made from."""

    config: EvaluatorBaseConfig
    evaluate_fn: EvaluateFn
    description: str = ""

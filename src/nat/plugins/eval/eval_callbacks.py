"""Alias for plug-ins: the code is in `nat.eval.eval_callbacks`."""

from nat.eval.eval_callbacks import EvalCallback, EvalCallbackManager, EvalResult, EvalResultItem, build_eval_result

__all__ = ["EvalCallback", "EvalCallbackManager", "EvalResult", "EvalResultItem", "build_eval_result"]

"""Alias for plug-ins: the code is in `nat.registry.decorators`."""

from nat.registry.decorators import (
    register_dataset_loader,
    register_eval_callback,
    register_evaluator,
    register_function,
    register_llm_client,
    register_llm_provider,
    register_tool_wrapper,
    register_tracker,
    register_trainer,
    register_trainer_adapter,
    register_trajectory_builder,
    register_ttc_strategy,
)

__all__ = [
    "register_dataset_loader",
    "register_eval_callback",
    "register_evaluator",
    "register_function",
    "register_llm_client",
    "register_llm_provider",
    "register_tool_wrapper",
    "register_tracker",
    "register_trainer",
    "register_trainer_adapter",
    "register_trajectory_builder",
    "register_ttc_strategy",
]

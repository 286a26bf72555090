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
from nat.registry.replacements import refusing

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

__getattr__ = refusing(
    __name__,
    (
        *("register_auth_provider", "register_embedder_client", "register_embedder_provider", "register_front_end"),
        *("register_function_group", "register_function_middleware", "register_logging_method", "register_memory"),
        *("register_middleware", "register_object_store", "register_optimizer", "register_optimizer_callback"),
        *("register_per_user_function", "register_per_user_function_group", "register_registry_handler"),
        *("register_retriever_client", "register_retriever_provider", "register_telemetry_exporter"),
    ),
)

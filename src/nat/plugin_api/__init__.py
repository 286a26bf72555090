"""Alias for plug-ins: the toolkit's stable import path, for release 1.9 and later.

It has what finetuning, evaluation, LLMs, functions and datasets need.
"""

from nat.builder.builder import Builder, EvalBuilder
from nat.builder.context import Context, ContextState
from nat.builder.dataset_loader import DatasetLoaderInfo
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.framework_enum import LLMFrameworkEnum
from nat.builder.function import Function
from nat.builder.function_info import FunctionInfo
from nat.builder.llm import LLMProviderInfo
from nat.data_models.common import OptionalSecretStr, SerializableSecretStr, get_secret_value, set_secret_from_env
from nat.data_models.component_ref import (
    ComponentRef,
    EmbedderRef,
    FunctionGroupRef,
    FunctionRef,
    LLMRef,
    MemoryRef,
    MiddlewareRef,
    ObjectStoreRef,
    RetrieverRef,
)
from nat.data_models.dataset_handler import EvalDatasetBaseConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig
from nat.registry.decorators import (
    register_dataset_loader,
    register_eval_callback,
    register_evaluator,
    register_function,
    register_llm_client,
    register_llm_provider,
    register_tool_wrapper,
)

__all__ = [
    "Builder",
    "ComponentRef",
    "Context",
    "ContextState",
    "DatasetLoaderInfo",
    "EmbedderRef",
    "EvalBuilder",
    "EvalDatasetBaseConfig",
    "EvaluatorBaseConfig",
    "EvaluatorInfo",
    "Function",
    "FunctionBaseConfig",
    "FunctionGroupRef",
    "FunctionInfo",
    "FunctionRef",
    "LLMBaseConfig",
    "LLMFrameworkEnum",
    "LLMProviderInfo",
    "LLMRef",
    "MemoryRef",
    "MiddlewareRef",
    "ObjectStoreRef",
    "OptionalSecretStr",
    "RetrieverRef",
    "SerializableSecretStr",
    "TelemetryExporterBaseConfig",
    "get_secret_value",
    "register_dataset_loader",
    "register_eval_callback",
    "register_evaluator",
    "register_function",
    "register_llm_client",
    "register_llm_provider",
    "register_tool_wrapper",
    "set_secret_from_env",
]

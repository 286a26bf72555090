"""The interface of a builder, as build functions see it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function import Function
from nat.builder.llm import LLMProviderInfo
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import WorkflowError

current_builder: ContextVar["Builder | None"] = ContextVar("nat_builder", default=None)
"""The builder of the running workflow."""


class Builder(ABC):
    """Returns the components of a configuration; an unknown name raises WorkflowError."""

    @staticmethod
    def current() -> "Builder":
        """The builder of the running workflow."""
        builder = current_builder.get()
        if builder is None:
            raise WorkflowError("Builder not set in context", hint="call this inside `async with WorkflowBuilder…`")
        return builder

    @property
    @abstractmethod
    def run_dir(self) -> Path | None:
        """The folder of the current run, None if no files are kept."""

    @property
    @abstractmethod
    def llm_name(self) -> str | None:
        """The LLM's key in the YAML, for the build functions of LLM providers and clients; None for others."""

    @property
    @abstractmethod
    def trained_llms(self) -> set[str]:
        """The keys of the LLMs that trainer adapters refer to and train."""

    @property
    @abstractmethod
    def llm_names(self) -> list[str]:
        """The keys of `llms`, in the order of the YAML."""

    @abstractmethod
    async def get_function(self, name: str) -> Function:
        """A function by its key."""

    @abstractmethod
    async def get_functions(self, function_names: Sequence[str]) -> list[Function]:
        """Several functions, in this order."""

    @abstractmethod
    def get_function_config(self, name: str) -> FunctionBaseConfig: ...

    @abstractmethod
    def get_workflow(self) -> Function:
        """The workflow as a function."""

    @abstractmethod
    def get_workflow_config(self) -> FunctionBaseConfig: ...

    @abstractmethod
    async def get_llm(self, llm_name: str, wrapper_type: str) -> Any:
        """A new client of a framework for an LLM; the builder closes it."""

    @abstractmethod
    async def get_llms(self, llm_names: Sequence[str], wrapper_type: str) -> list[Any]:
        """One new client per name, in this order."""

    @abstractmethod
    def get_llm_config(self, llm_name: str) -> LLMBaseConfig: ...

    @abstractmethod
    async def get_llm_provider(self, llm_name: str) -> LLMProviderInfo:
        """The provider of an LLM, opened on first use."""

    @abstractmethod
    async def get_tool(self, fn_name: str, wrapper_type: str) -> Any:
        """A function as a framework's tool object."""

    @abstractmethod
    async def get_tools(self, tool_names: Sequence[str], wrapper_type: str) -> list[Any]:
        """One tool object per name, in this order."""

    @abstractmethod
    async def get_ttc_strategy(self, strategy_name: str, pipeline_type: Any, stage_type: Any) -> Any:
        """A strategy of this stage that supports this pipeline."""

    @abstractmethod
    async def get_ttc_strategy_config(
        self, strategy_name: str, pipeline_type: Any, stage_type: Any
    ) -> TTCStrategyBaseConfig: ...

    @abstractmethod
    async def get_trajectory_builder(self, trajectory_builder_name: str) -> Any:
        """A trajectory builder, built on first use."""

    @abstractmethod
    async def get_trajectory_builder_config(self, trajectory_builder_name: str) -> TrajectoryBuilderConfig: ...

    @abstractmethod
    async def get_trainer_adapter(self, trainer_adapter_name: str) -> Any:
        """A trainer adapter, built on first use."""

    @abstractmethod
    async def get_trainer_adapter_config(self, trainer_adapter_name: str) -> TrainerAdapterConfig: ...

    @abstractmethod
    async def get_trainer(self, trainer_name: str, trajectory_builder: Any, trainer_adapter: Any) -> Any:
        """A trainer, built on first use and bound to these two."""

    @abstractmethod
    async def get_trainer_config(self, trainer_name: str) -> TrainerConfig: ...


class EvalBuilder(Builder):
    """A builder that has evaluators too."""

    @abstractmethod
    def get_evaluator(self, evaluator_name: str) -> EvaluatorInfo:
        """An evaluator by its key."""

    @abstractmethod
    def get_evaluator_config(self, evaluator_name: str) -> EvaluatorBaseConfig: ...

    async def get_eval_callbacks(self) -> list[Any]:
        """The callbacks of `general.telemetry.tracing`, built on first use."""
        return []

    @abstractmethod
    def get_max_concurrency(self) -> int:
        """`eval.general.max_concurrency`."""

    @abstractmethod
    def get_output_dir(self) -> Path:
        """The folder of the reports."""

    @abstractmethod
    async def get_all_tools(self, wrapper_type: str) -> list[Any]:
        """Every function as a framework's tool object."""

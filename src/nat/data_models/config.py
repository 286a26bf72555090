"""The whole YAML as one model.

The loader chooses the class of each component from the registry; here each section has the base class of its
components.
"""

from typing import Self

from pydantic import BaseModel, ConfigDict, SerializeAsAny, model_validator

from nat.data_models.evaluate import EvalConfig
from nat.data_models.finetuning import FinetuneConfig, TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.function import EmptyFunctionConfig, FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.telemetry_exporter import TelemetryExporterBaseConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig


class TelemetryConfig(BaseModel):
    """Exporters of traces, and callbacks of evaluations."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    tracing: dict[str, SerializeAsAny[TelemetryExporterBaseConfig]] = {}
    """Exporters, which get the spans of every rollout, and callbacks, which `nat eval` calls, by name. Other types of
    the toolkit have no effect."""


class GeneralConfig(BaseModel):
    """The `general` section."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    telemetry: TelemetryConfig = TelemetryConfig()
    """What reports on rollouts and evaluations."""


class Config(BaseModel):
    """The configuration; `nat.config.load_config` creates it."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    imports: list[str] = []
    """Python files (paths that end in `.py`) and modules that register components of this configuration."""
    general: GeneralConfig = GeneralConfig()
    """Settings of the process."""
    llms: dict[str, SerializeAsAny[LLMBaseConfig]] = {}
    """Models, by name."""
    functions: dict[str, SerializeAsAny[FunctionBaseConfig]] = {}
    """Functions that the workflow or other functions call, by name."""
    workflow: SerializeAsAny[FunctionBaseConfig] = EmptyFunctionConfig()
    """The agent."""
    ttc_strategies: dict[str, SerializeAsAny[TTCStrategyBaseConfig]] = {}
    """Test-time-compute strategies, by name."""
    eval: EvalConfig = EvalConfig()
    """Dataset, limits and evaluators."""
    trajectory_builders: dict[str, SerializeAsAny[TrajectoryBuilderConfig]] = {}
    """Trajectory builders, which turn rollouts into trajectories, by name."""
    trainer_adapters: dict[str, SerializeAsAny[TrainerAdapterConfig]] = {}
    """Trainer adapters, which send trajectories to a training backend, by name."""
    trainers: dict[str, SerializeAsAny[TrainerConfig]] = {}
    """Trainers, which run the epochs, by name."""
    finetuning: FinetuneConfig = FinetuneConfig()
    """The components of the run, and what they train."""

    @model_validator(mode="after")
    def _play_as_many_as_all_suit(self) -> Self:
        """Set `max_concurrency` where nobody did."""
        general, of_llms = self.eval.general, [llm.most_at_a_time for llm in self.llms.values()]
        of_functions = [each.most_at_a_time for each in (*self.functions.values(), self.workflow)]
        if of_llms and "max_concurrency" not in general.model_fields_set:
            general.max_concurrency = min(of_llms + [most for most in of_functions if most is not None])
        return self

"""The whole YAML as one model.

The loader chooses the class of each component from the registry; here each section has the base class of its
components.
"""

from pathlib import Path
from typing import Any, Self

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

    def located(self) -> Self:
        """The same with absolute paths, since agents and evaluators may change the working directory."""
        opened = {"llms", "trainer_adapters"}  # before the first rollout; their paths may be names of the Hub
        return self.model_copy(update={name: _located(value) for name, value in self if name not in opened})


_FILES = {"file_path", "dataset", "validation_dataset", "validation_config_file"}
"""Fields with paths as texts."""


def _located(value: Any, name: str = "") -> Any:
    match value:
        case Config():  # which the caller recognises
            return value
        case BaseModel():
            found = ((key, each, _located(each, key)) for key, each in value)
            return value.model_copy(update={key: new for key, each, new in found if new is not each})
        case dict():
            return {key: _located(each) for key, each in value.items()}
        case Path():
            return value.absolute()
        case str() if name in _FILES and Path(value).exists():
            return str(Path(value).absolute())
        case _:
            return value

"""What is known of a registered component."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import LLMBaseConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig

BuildFn = Callable[[Any, Any], AbstractAsyncContextManager[Any]]
"""`(config, builder)` → an async context manager around the built thing."""

BASE_CONFIGS: dict[ComponentGroup, type[TypedBaseModel]] = {
    ComponentGroup.LLMS: LLMBaseConfig,
    ComponentGroup.FUNCTIONS: FunctionBaseConfig,
    ComponentGroup.EVALUATORS: EvaluatorBaseConfig,
    ComponentGroup.DATASETS: DatasetBaseConfig,
    ComponentGroup.TTC_STRATEGIES: TTCStrategyBaseConfig,
    ComponentGroup.TRAJECTORY_BUILDERS: TrajectoryBuilderConfig,
    ComponentGroup.TRAINER_ADAPTERS: TrainerAdapterConfig,
    ComponentGroup.TRAINERS: TrainerConfig,
}
"""The class that each group's configs derive from."""

NOUNS: dict[ComponentGroup, str] = {
    ComponentGroup.LLMS: "LLM provider",
    ComponentGroup.FUNCTIONS: "function",
    ComponentGroup.EVALUATORS: "evaluator",
    ComponentGroup.DATASETS: "dataset loader",
    ComponentGroup.TTC_STRATEGIES: "TTC strategy",
    ComponentGroup.TRAJECTORY_BUILDERS: "trajectory builder",
    ComponentGroup.TRAINER_ADAPTERS: "trainer adapter",
    ComponentGroup.TRAINERS: "trainer",
}
"""How messages call one member of a group."""


@dataclass(frozen=True)
class RegisteredComponent:
    """A config class and the function that builds what it describes."""

    group: ComponentGroup
    config_type: type[TypedBaseModel]
    build_fn: BuildFn
    framework_wrappers: tuple[str, ...] = ()
    """The frameworks that a function says it uses; informative, since capture sits below all of them."""

    @property
    def full_type(self) -> str:
        return self.config_type.static_full_type() or ""

    @property
    def local_name(self) -> str:
        return self.config_type.static_type() or ""

    @property
    def module_name(self) -> str:
        return self.config_type.__module__

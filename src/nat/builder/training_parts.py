"""The part of a builder that gives out trainers and what they work with, each built on first use."""

from typing import Any

from nat.builder.builder import EvalBuilder
from nat.builder.components import Components
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.finetuning import TrainerAdapterConfig, TrainerConfig, TrajectoryBuilderConfig
from nat.data_models.ttc_strategy import TTCStrategyBaseConfig
from nat.errors import WorkflowError


class TrainingParts(EvalBuilder):
    """Trajectory builders, trainer adapters, trainers and test-time-compute strategies by name."""

    _components: Components

    async def add_trajectory_builder(self, name: str, config: TrajectoryBuilderConfig) -> None:
        self._components.add(ComponentGroup.TRAJECTORY_BUILDERS, name, config)

    async def get_trajectory_builder(self, trajectory_builder_name: str) -> Any:
        return await self._components.instance(ComponentGroup.TRAJECTORY_BUILDERS, trajectory_builder_name, self)

    async def get_trajectory_builder_config(self, trajectory_builder_name: str) -> TrajectoryBuilderConfig:
        group = ComponentGroup.TRAJECTORY_BUILDERS
        return self._components.config(group, trajectory_builder_name, TrajectoryBuilderConfig)

    async def add_trainer_adapter(self, name: str, config: TrainerAdapterConfig) -> None:
        self._components.add(ComponentGroup.TRAINER_ADAPTERS, name, config)

    async def get_trainer_adapter(self, trainer_adapter_name: str) -> Any:
        return await self._components.instance(ComponentGroup.TRAINER_ADAPTERS, trainer_adapter_name, self)

    async def get_trainer_adapter_config(self, trainer_adapter_name: str) -> TrainerAdapterConfig:
        return self._components.config(ComponentGroup.TRAINER_ADAPTERS, trainer_adapter_name, TrainerAdapterConfig)

    async def add_trainer(self, name: str, config: TrainerConfig) -> None:
        self._components.add(ComponentGroup.TRAINERS, name, config)

    async def get_trainer(self, trainer_name: str, trajectory_builder: Any, trainer_adapter: Any) -> Any:
        trainer = await self._components.instance(ComponentGroup.TRAINERS, trainer_name, self)
        await trainer.bind_components(trajectory_builder, trainer_adapter)
        return trainer

    async def get_trainer_config(self, trainer_name: str) -> TrainerConfig:
        return self._components.config(ComponentGroup.TRAINERS, trainer_name, TrainerConfig)

    async def add_ttc_strategy(self, name: str, config: TTCStrategyBaseConfig) -> None:
        self._components.add(ComponentGroup.TTC_STRATEGIES, name, config)

    async def get_ttc_strategy(self, strategy_name: str, pipeline_type: Any, stage_type: Any) -> Any:
        strategy = await self._components.instance(ComponentGroup.TTC_STRATEGIES, strategy_name, self)
        if strategy.stage_type() != stage_type:
            raise WorkflowError(
                f"the strategy '{strategy_name}' is of the stage {strategy.stage_type()}; wanted: {stage_type}"
            )
        strategy.set_pipeline_type(pipeline_type)
        return strategy

    async def get_ttc_strategy_config(
        self, strategy_name: str, pipeline_type: Any, stage_type: Any
    ) -> TTCStrategyBaseConfig:
        await self.get_ttc_strategy(strategy_name, pipeline_type, stage_type)
        return self._components.config(ComponentGroup.TTC_STRATEGIES, strategy_name, TTCStrategyBaseConfig)

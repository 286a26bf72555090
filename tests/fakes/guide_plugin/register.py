"""The guide's registration module, which the plug-in's entry point names."""

from nat.builder.builder import Builder
from nat.cli.register_workflow import register_trainer, register_trainer_adapter, register_trajectory_builder

from . import my_agent  # noqa: F401 - registers workflow and evaluator
from .my_trainer import MyTrainer, MyTrainerConfig
from .my_trainer_adapter import MyTrainerAdapter, MyTrainerAdapterConfig
from .my_trajectory_builder import MyTrajectoryBuilder, MyTrajectoryBuilderConfig


@register_trajectory_builder(config_type=MyTrajectoryBuilderConfig)
async def my_trajectory_builder(config: MyTrajectoryBuilderConfig, builder: Builder):
    """Register the custom trajectory builder."""
    yield MyTrajectoryBuilder(trajectory_builder_config=config)


@register_trainer_adapter(config_type=MyTrainerAdapterConfig)
async def my_trainer_adapter(config: MyTrainerAdapterConfig, builder: Builder):
    """Register the custom trainer adapter."""
    yield MyTrainerAdapter(adapter_config=config)


@register_trainer(config_type=MyTrainerConfig)
async def my_trainer(config: MyTrainerConfig, builder: Builder):
    """Register the custom trainer."""
    yield MyTrainer(trainer_config=config)

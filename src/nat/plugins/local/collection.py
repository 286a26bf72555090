"""The generic builder and trainer, under the names that go with the `local` adapter."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.data_models.finetuning import TrainerConfig
from nat.finetuning.trainer import EpochTrainer
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder, EvalTrajectoryBuilderConfig
from nat.registry.decorators import register_trainer, register_trajectory_builder


class LocalTrajectoryBuilderConfig(EvalTrajectoryBuilderConfig, name="local_traj_builder"):
    """Plays the dataset `num_generations` times per epoch and groups the rollouts by example."""


class LocalTrainerConfig(TrainerConfig, name="local_trainer"):
    """Trains epoch after epoch; what it does is said under `finetuning`."""


@register_trajectory_builder(config_type=LocalTrajectoryBuilderConfig)
async def local_traj_builder(
    config: LocalTrajectoryBuilderConfig,
    builder: Builder,  # noqa: ARG001 - the signature of build functions
) -> AsyncGenerator[EvalTrajectoryBuilder, None]:
    """The builder needs nothing but its configuration."""
    yield EvalTrajectoryBuilder(trajectory_builder_config=config)


@register_trainer(config_type=LocalTrainerConfig)
async def local_trainer(config: LocalTrainerConfig, builder: Builder) -> AsyncGenerator[EpochTrainer, None]:  # noqa: ARG001 - likewise
    """The trainer gets builder and adapter through `bind_components`."""
    yield EpochTrainer(trainer_config=config)

"""The generic builder under ART's name."""

from collections.abc import AsyncGenerator

from nat.art.client.config import ARTTrajectoryBuilderConfig
from nat.builder.builder import Builder
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder
from nat.registry.decorators import register_trajectory_builder


class ARTTrajectoryBuilder(EvalTrajectoryBuilder):
    """One trajectory per scored rollout, grouped by example; all that ART needs stands in the trajectories."""


@register_trajectory_builder(config_type=ARTTrajectoryBuilderConfig)
async def openpipe_art_traj_builder(
    config: ARTTrajectoryBuilderConfig,
    builder: Builder,  # noqa: ARG001 - the signature of build functions
) -> AsyncGenerator[ARTTrajectoryBuilder, None]:
    """The builder needs nothing but its configuration."""
    yield ARTTrajectoryBuilder(trajectory_builder_config=config)

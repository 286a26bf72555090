"""Alias for plug-ins: the code is in `nat.art.client.config`."""

from nat.art.client.config import (
    ARTBackendConfig,
    ARTTrainerAdapterConfig,
    ARTTrainerConfig,
    ARTTrainingConfig,
    ARTTrajectoryBuilderConfig,
)

__all__ = [
    "ARTBackendConfig",
    "ARTTrainerAdapterConfig",
    "ARTTrainerConfig",
    "ARTTrainingConfig",
    "ARTTrajectoryBuilderConfig",
]

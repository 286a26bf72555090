"""Alias for plug-ins: the code is in `nat.art.client.config`."""

from nat.art.client.config import (
    ARTBackendConfig,
    ARTServerConfig,
    ARTTrainerAdapterConfig,
    ARTTrainerConfig,
    ARTTrainingConfig,
    ARTTrajectoryBuilderConfig,
)

__all__ = [
    "ARTBackendConfig",
    "ARTServerConfig",
    "ARTTrainerAdapterConfig",
    "ARTTrainerConfig",
    "ARTTrainingConfig",
    "ARTTrajectoryBuilderConfig",
]

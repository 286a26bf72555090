"""ART's configuration classes under the toolkit's path."""

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

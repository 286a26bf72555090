"""The base of every test-time-compute strategy config."""

from nat.data_models.common import TypedBaseModel


class TTCStrategyBaseConfig(TypedBaseModel):
    """A strategy, named in the YAML under `ttc_strategies`."""

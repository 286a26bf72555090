"""The base of configs that turn on callbacks of evaluations."""

from typing import TypeVar

from nat.data_models.common import TypedBaseModel


class TelemetryExporterBaseConfig(TypedBaseModel):
    """A callback of evaluations, named in the YAML under `general.telemetry.tracing`."""


TelemetryExporterConfigT = TypeVar("TelemetryExporterConfigT", bound=TelemetryExporterBaseConfig)

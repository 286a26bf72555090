"""The base of what stands under `general.telemetry.tracing`: callbacks of evaluations, and exporters of traces."""

from typing import TypeVar

from pydantic import Field

from nat.data_models.common import TypedBaseModel


class TelemetryExporterBaseConfig(TypedBaseModel):
    """A callback of evaluations, or an exporter of traces, named in the YAML under `general.telemetry.tracing`."""


class TracingConfig(TelemetryExporterBaseConfig):
    """An exporter that the spans of every rollout are sent to; what it is registered with gives a `SpanExporter`."""

    batch_size: int = Field(default=100, ge=1)
    """Spans of one request."""
    flush_interval: float = Field(default=5.0, gt=0)
    """Seconds after which fewer spans are sent, too."""
    max_queue_size: int = Field(default=1000, ge=1)
    """Spans that may wait; where more come, the oldest are lost."""
    shutdown_timeout: float = Field(default=10.0, ge=0)
    """Seconds that the end of the command waits for the last spans."""

    @property
    def resource(self) -> dict[str, str]:
        """Attributes of the resource that the spans belong to."""
        return {"service.name": "nat"}


TelemetryExporterConfigT = TypeVar("TelemetryExporterConfigT", bound=TelemetryExporterBaseConfig)

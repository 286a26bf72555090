"""The base of what stands under `general.telemetry.tracing`: callbacks of evaluations, and exporters of traces."""

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from nat.data_models.common import TypedBaseModel


class TelemetryExporterBaseConfig(TypedBaseModel):
    """A callback of evaluations, or an exporter of traces, named in the YAML under `general.telemetry.tracing`."""


class BatchConfig(BaseModel):
    """How spans wait to be sent, in the toolkit's names; the run never waits for them."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    batch_size: int = Field(default=100, ge=1)
    """Spans of one request."""
    flush_interval: float = Field(default=5.0, gt=0)
    """Seconds after which fewer spans are sent, too."""
    max_queue_size: int = Field(default=1000, ge=1)
    """Spans that may wait; where more come, they are lost and counted."""
    drop_on_overflow: bool = False
    """Accepted for the toolkit's YAMLs: a full queue never makes the run wait, whatever stands here."""
    shutdown_timeout: float = Field(default=10.0, ge=0)
    """Seconds that the end of the command waits for the last spans."""


class TracingConfig(TelemetryExporterBaseConfig):
    """An exporter that the spans of every rollout are sent to."""

    @property
    def batching(self) -> BatchConfig:
        """How its spans wait."""
        return BatchConfig()


TelemetryExporterConfigT = TypeVar("TelemetryExporterConfigT", bound=TelemetryExporterBaseConfig)

"""The exporters of `general.telemetry.tracing`, with the fields of the toolkit."""

import base64
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, SecretStr

from nat.data_models.telemetry_exporter import BatchConfig, TracingConfig
from nat.errors import WorkflowError
from nat.http.client import bearer
from nat.registry.decorators import register_trace_exporter
from nat.telemetry.span import Exporter
from nat.telemetry.span_file import SpanFile
from nat.wire.extras import install_hint

_WEAVE = "https://trace.wandb.ai"


class _Batched(BatchConfig, TracingConfig):
    """An exporter whose batches can be configured."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    @property
    def batching(self) -> BatchConfig:
        return self


class _Collector(_Batched):
    project: str
    """Name of the project in the back end."""
    endpoint: str
    """URL that takes OTLP over HTTP, with its path."""


class OtelCollectorConfig(_Collector, name="otelcollector"):
    """Any server that takes OTLP over HTTP, such as the OpenTelemetry Collector, Jaeger or Tempo."""

    resource_attributes: dict[str, str] = Field(default_factory=dict)
    """Attributes of the resource, beside `service.name`, which is the project."""


class PhoenixConfig(_Collector, name="phoenix"):
    """Arize Phoenix, at `http://HOST:6006/v1/traces`."""

    timeout: float = Field(default=30.0, gt=0)
    """Seconds for one request."""
    api_key: SecretStr = SecretStr("")
    """Its key, if it asks for one; else the environment variable PHOENIX_API_KEY."""


class LangfuseConfig(_Batched, name="langfuse"):
    """Langfuse, at `https://HOST/api/public/otel/v1/traces`; it gets scores, too."""

    endpoint: str
    """URL that takes OTLP over HTTP, with its path."""
    public_key: str = ""
    """The project's public key; else the environment variable LANGFUSE_PUBLIC_KEY."""
    secret_key: SecretStr = SecretStr("")
    """The project's secret key; else the environment variable LANGFUSE_SECRET_KEY."""
    resource_attributes: dict[str, str] = Field(default_factory=dict)
    """Attributes of the resource, beside `service.name`."""


class WeaveConfig(TracingConfig, name="weave"):
    """W&B Weave, with the key in the environment variable WANDB_API_KEY.

    WF_TRACE_SERVER_URL names another server than W&B's own.
    """

    project: str
    """Name of the project."""
    entity: str | None = None
    """Name of the team or user; else the environment variable WANDB_ENTITY."""
    redact_pii: bool = False
    """Send no messages, inputs and outputs, which is more than the toolkit leaves out."""
    redact_pii_fields: list[str] | None = None
    """Send no messages, inputs and outputs if any field is named here."""
    redact_keys: list[str] | None = None
    """Send no messages, inputs and outputs if any key is named here."""
    verbose: bool = False
    """Accepted for the toolkit's YAMLs: Weave's client, which prints links, is not used."""
    attributes: dict[str, Any] | None = None
    """Attributes of the resource."""


class SpanFileConfig(TracingConfig, name="file"):
    """A line of JSON for each span; needs no further package."""

    output_path: str
    """The file; with rolling, a path without a suffix is the folder of the files."""
    project: str
    """Stands in each line."""
    mode: Literal["append", "overwrite"] = "append"
    """Whether an existing file is continued or emptied at the start."""
    enable_rolling: bool = False
    """Rename the file when it is full, and begin a new one."""
    max_file_size: int = Field(default=10 * 2**20, ge=1)
    """Bytes from which on the file is renamed."""
    max_files: int = Field(default=5, ge=0)
    """Renamed files that are kept."""
    cleanup_on_init: bool = False
    """Delete renamed files beyond `max_files` at the start, too."""


@register_trace_exporter(OtelCollectorConfig)
def otel_collector(config: OtelCollectorConfig) -> Exporter:
    """Send to any collector."""
    resource = {"service.name": config.project, **config.resource_attributes}
    return _otlp(config.endpoint, headers={}, resource=resource)


@register_trace_exporter(PhoenixConfig)
def phoenix(config: PhoenixConfig) -> Exporter:
    """Send to Phoenix, which finds the project in the resource."""
    key = config.api_key.get_secret_value() or os.environ.get("PHOENIX_API_KEY")
    resource = {"service.name": config.project, "openinference.project.name": config.project}
    return _otlp(config.endpoint, headers=bearer(key), resource=resource, timeout=config.timeout)


@register_trace_exporter(LangfuseConfig)
def langfuse(config: LangfuseConfig) -> Exporter:
    """Send to Langfuse with both keys."""
    public = config.public_key or _variable("LANGFUSE_PUBLIC_KEY", "public_key")
    secret = config.secret_key.get_secret_value() or _variable("LANGFUSE_SECRET_KEY", "secret_key")
    login = base64.b64encode(f"{public}:{secret}".encode()).decode()
    resource = {"service.name": "nat", **config.resource_attributes}
    return _otlp(config.endpoint, scored=True, headers={"Authorization": f"Basic {login}"}, resource=resource)


@register_trace_exporter(WeaveConfig)
def weave(config: WeaveConfig) -> Exporter:
    """Send to Weave's route for OTLP, which finds the project in the resource."""
    key = _variable("WANDB_API_KEY")
    entity = config.entity or _variable("WANDB_ENTITY", "entity")
    given = {name: str(value) for name, value in (config.attributes or {}).items()}
    resource = {"service.name": config.project, "wandb.entity": entity, "wandb.project": config.project, **given}
    server = os.environ.get("WF_TRACE_SERVER_URL", _WEAVE).rstrip("/")
    hides = config.redact_pii or bool(config.redact_pii_fields) or bool(config.redact_keys)
    headers = {"wandb-api-key": key}
    return _otlp(f"{server}/otel/v1/traces", headers=headers, resource=resource, content=not hides)


@register_trace_exporter(SpanFileConfig)
def span_file(config: SpanFileConfig) -> Exporter:
    """Write to a file."""
    file = SpanFile(
        Path(config.output_path),
        config.project,
        max_bytes=config.max_file_size if config.enable_rolling else None,
        max_files=config.max_files,
        begin_anew=config.mode == "overwrite",
    )
    if config.cleanup_on_init:
        file.clean_up()
    return file


def _otlp(endpoint: str, *, scored: bool = False, **options: Any) -> Exporter:
    """An exporter from the module that needs the extra, which loading a YAML does not import."""
    try:
        from nat.telemetry.otlp import LangfuseExporter, OtlpExporter
    except ModuleNotFoundError as error:
        raise WorkflowError(f"needs {error.name}, which is not installed", hint=install_hint("telemetry")) from error
    return (LangfuseExporter if scored else OtlpExporter)(endpoint, **options)


def _variable(variable: str, field: str | None = None) -> str:
    """The value of an environment variable that must be set, unless the field is."""
    if found := os.environ.get(variable):
        return found
    place = variable if field is None else f"{field} or the environment variable {variable}"
    raise WorkflowError(f"set {place}")

"""The exporters of `general.telemetry.tracing`, with the fields of the toolkit: OTLP with other headers, and a file."""

import base64
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr

from nat.data_models.telemetry_exporter import TracingConfig
from nat.errors import WorkflowError
from nat.files import UserPathText
from nat.http.client import bearer
from nat.registry.decorators import register_eval_callback
from nat.wire.hosts import is_loopback

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_WEAVE = "https://trace.wandb.ai/otel/v1/traces"


class _Tracing(TracingConfig):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class OtelCollectorConfig(_Tracing, name="otelcollector"):
    """Any server that takes OTLP over HTTP, such as the OpenTelemetry Collector, Jaeger or Tempo."""

    project: str
    """Name of the project in the back end, as `service.name`."""
    endpoint: str
    """URL that takes OTLP over HTTP, with its path."""
    resource_attributes: dict[str, str] = Field(default_factory=dict)
    """Attributes of the resource, beside `service.name`, which is the project."""

    @property
    def resource(self) -> dict[str, str]:
        return {"service.name": self.project, **self.resource_attributes}


class PhoenixConfig(_Tracing, name="phoenix"):
    """Arize Phoenix, at `http://HOST:6006/v1/traces`."""

    project: str
    """Name of the project in Phoenix."""
    endpoint: str
    """URL that takes OTLP over HTTP, with its path."""
    timeout: float = Field(default=30.0, gt=0)
    """Seconds for one request."""
    api_key: SecretStr = SecretStr("")
    """Its key, if it asks for one; else the environment variable PHOENIX_API_KEY."""

    @property
    def resource(self) -> dict[str, str]:
        return {"service.name": self.project, "openinference.project.name": self.project}


class LangfuseConfig(_Tracing, name="langfuse"):
    """Langfuse, at `https://HOST/api/public/otel/v1/traces`."""

    endpoint: str
    """URL that takes OTLP over HTTP, with its path."""
    public_key: str = ""
    """The project's public key; else the environment variable LANGFUSE_PUBLIC_KEY."""
    secret_key: SecretStr = SecretStr("")
    """The project's secret key; else the environment variable LANGFUSE_SECRET_KEY."""
    resource_attributes: dict[str, str] = Field(default_factory=dict)
    """Attributes of the resource, beside `service.name`."""

    @property
    def resource(self) -> dict[str, str]:
        return {"service.name": "nat", **self.resource_attributes}


class WeaveConfig(_Tracing, name="weave"):
    """W&B Weave, with the key in the environment variable WANDB_API_KEY."""

    project: str
    """Name of the project."""
    entity: str | None = None
    """Name of the team or user; else the environment variable WANDB_ENTITY."""
    attributes: dict[str, Any] | None = None
    """Attributes of the resource."""

    @property
    def resource(self) -> dict[str, str]:
        entity = self.entity or _variable("WANDB_ENTITY", "entity")
        known = {"service.name": self.project, "wandb.entity": entity, "wandb.project": self.project}
        return known | {name: str(value) for name, value in (self.attributes or {}).items()}


class SpanFileConfig(_Tracing, name="file"):
    """A line of JSON for each span."""

    output_path: UserPathText
    """The file."""
    project: str
    """Stands in each line, as `service.name`."""
    mode: Literal["append", "overwrite"] = "append"
    """Whether an existing file is continued or emptied at the start."""

    @property
    def resource(self) -> dict[str, str]:
        return {"service.name": self.project}


@register_eval_callback(OtelCollectorConfig)
def otel_collector(config: OtelCollectorConfig) -> "SpanExporter":
    """Send to any collector."""
    return _otlp(config.endpoint)


@register_eval_callback(PhoenixConfig)
def phoenix(config: PhoenixConfig) -> "SpanExporter":
    """Send to Phoenix, which finds the project in the resource."""
    key = config.api_key.get_secret_value() or os.environ.get("PHOENIX_API_KEY")
    return _otlp(config.endpoint, bearer(key), timeout=config.timeout)


@register_eval_callback(LangfuseConfig)
def langfuse(config: LangfuseConfig) -> "SpanExporter":
    """Send to Langfuse with both keys."""
    public = config.public_key or _variable("LANGFUSE_PUBLIC_KEY", "public_key")
    secret = config.secret_key.get_secret_value() or _variable("LANGFUSE_SECRET_KEY", "secret_key")
    login = base64.b64encode(f"{public}:{secret}".encode()).decode()
    return _otlp(config.endpoint, {"Authorization": f"Basic {login}"})


@register_eval_callback(WeaveConfig)
def weave(_: WeaveConfig) -> "SpanExporter":
    """Send to Weave's route for OTLP, which finds the project in the resource."""
    return _otlp(_WEAVE, {"wandb-api-key": _variable("WANDB_API_KEY")})


@register_eval_callback(SpanFileConfig)
def span_file(config: SpanFileConfig) -> "SpanExporter":
    """Write to a file."""
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    class SpanFile(ConsoleSpanExporter):
        def shutdown(self) -> None:
            self.out.close()

    path = Path(config.output_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a" if config.mode == "append" else "w", encoding="utf-8")
    return SpanFile(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")


def _otlp(endpoint: str, headers: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> "SpanExporter":
    import requests
    from opentelemetry.exporter.otlp.proto.http import trace_exporter

    logging.getLogger(trace_exporter.__name__).addFilter(_once)
    session = requests.Session()
    session.trust_env = not is_loopback(urlsplit(endpoint).hostname or "")  # its key goes to no proxy
    return trace_exporter.OTLPSpanExporter(endpoint, headers=headers, timeout=timeout, session=session)


_said: set[str] = set()


def _once(record: logging.LogRecord) -> bool:
    """The exporter says of every batch that a server does not take it."""
    is_new = record.msg not in _said
    _said.add(record.msg)
    return is_new


def _variable(variable: str, field: str | None = None) -> str:
    """The value of an environment variable that must be set, unless the field is."""
    if found := os.environ.get(variable):
        return found
    place = variable if field is None else f"{field} or the environment variable {variable}"
    raise WorkflowError(f"set {place}")

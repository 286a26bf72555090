import base64
import json
import sys
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fakes.made_spans import rollout
from fakes.otlp_server import OtlpServer
from fakes.proxy import RecordingProxy
from nat.config.load import parse_config
from nat.errors import ConfigError
from nat.plugins import telemetry
from nat.rollout.traces import opened_traces

UPSTREAM: dict[str, dict[str, Any]] = {
    "otelcollector": {"project": "p", "endpoint": "http://localhost:4318/v1/traces", "resource_attributes": {"a": "b"}},
    "phoenix": {"project": "p", "endpoint": "http://localhost:6006/v1/traces", "timeout": 30, "api_key": "k"},
    "langfuse": {"endpoint": "http://localhost:3000/api/public/otel/v1/traces", "public_key": "p", "secret_key": "s"},
    "weave": {"project": "p", "entity": "e", "attributes": {"a": 1}},
    "file": {"project": "p", "output_path": "x.jsonl", "mode": "overwrite"},
}
"""Exporters as the toolkit's documentation writes them."""
BATCHED = {"batch_size": 50, "flush_interval": 1, "max_queue_size": 9, "shutdown_timeout": 2}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY", "PHOENIX_API_KEY", "WANDB_API_KEY", "WANDB_ENTITY"):
        monkeypatch.delenv(name, raising=False)


def tracing(kind: str, **fields: Any) -> Any:
    tree = {"general": {"telemetry": {"tracing": {"mine": {"_type": kind, **fields}}}}}
    return parse_config(tree, environ={}).general.telemetry.tracing


@pytest.mark.parametrize("kind", UPSTREAM)
def test_the_toolkit_s_yaml_loads(kind, caplog):
    """Fields that the toolkit declares are known, and nothing is said to be without effect."""
    config = tracing(kind, **UPSTREAM[kind] | BATCHED)["mine"]
    assert (config.static_type(), config.batch_size) == (kind, 50)
    assert "no effect" not in caplog.text


@asynccontextmanager
async def traced(kind: str, **fields: Any):
    async with opened_traces(tracing(kind, **fields)) as traces:
        traces.ended(rollout("1"), "a question", is_judged=False)
        yield


async def test_a_collector_gets_the_project_as_service():
    """`resource_attributes` are added, and may replace the name of the service."""
    async with OtlpServer() as server:
        async with traced("otelcollector", project="p", endpoint=server.endpoint, resource_attributes={"team": "t"}):
            pass
        assert server.spans[0].resource == {"service.name": "p", "team": "t"}
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("key", ["yaml", "environment"])
async def test_phoenix_gets_its_project_and_key(key, monkeypatch):
    """The key of the YAML, else that of the environment."""
    monkeypatch.setenv("PHOENIX_API_KEY", "environment")
    own = {"api_key": "yaml"} if key == "yaml" else {}
    async with OtlpServer() as server:
        async with traced("phoenix", project="p", endpoint=server.endpoint, **own):
            pass
        assert server.spans[0].resource["openinference.project.name"] == "p"
        assert server.requests[0].headers["authorization"] == f"Bearer {key}"


async def test_langfuse_gets_both_keys(monkeypatch):
    """As HTTP's Basic login; resource attributes, which the toolkit ignores here, are sent."""
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk")
    async with OtlpServer() as server:
        endpoint = f"{server.base_url}/api/public/otel/v1/traces"
        async with traced("langfuse", endpoint=endpoint, resource_attributes={"team": "t"}):
            pass
        login = base64.b64encode(b"pk:sk").decode()
        assert server.requests[0].headers["authorization"] == f"Basic {login}"
        assert server.spans[0].resource == {"service.name": "nat", "team": "t"}


async def test_weave_gets_its_project_and_key(monkeypatch):
    """At W&B's address."""
    monkeypatch.setenv("WANDB_API_KEY", "key")
    async with OtlpServer() as server:
        monkeypatch.setattr(telemetry, "_WEAVE", server.endpoint)
        async with traced("weave", project="p", entity="e", attributes={"stage": 1}):
            pass
        assert server.requests[0].headers["wandb-api-key"] == "key"
        resource = server.spans[0].resource
        assert (resource["wandb.entity"], resource["wandb.project"], resource["stage"]) == ("e", "p", "1")


async def test_a_collector_on_this_machine_is_reached_directly(monkeypatch):
    """Its key and the spans go to no proxy; those for other hosts do."""
    async with OtlpServer() as server, RecordingProxy(monkeypatch) as proxy:
        async with traced("phoenix", project="p", endpoint=server.endpoint, api_key="k"):
            pass
        assert (len(server.spans), proxy.asked) == (1, [])
        async with traced("phoenix", project="p", endpoint="http://nobody.invalid/v1/traces", shutdown_timeout=2):
            pass
        assert set(proxy.asked) == {"POST http://nobody.invalid/v1/traces"}


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("langfuse", "set public_key or the environment variable LANGFUSE_PUBLIC_KEY"),
        ("weave", "set WANDB_API_KEY"),
    ],
)
async def test_a_missing_key_is_found_before_anything_starts(kind, missing):
    """The error names the exporter's place in the YAML."""
    fields = {name: value for name, value in UPSTREAM[kind].items() if "key" not in name}
    with pytest.raises(ConfigError, match=f"general.telemetry.tracing.mine: {missing}"):
        async with traced(kind, **fields):
            pytest.fail("it was opened")


@pytest.mark.parametrize("kind", ["otelcollector", "file"])
async def test_a_missing_package_is_found_before_anything_starts(kind, monkeypatch):
    """The hint names the extra."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(ConfigError, match=r"mine: needs opentelemetry\.") as caught:
        async with traced(kind, **UPSTREAM[kind]):
            pytest.fail("it was opened")
    assert "[telemetry]" in caught.value.hint


async def test_a_file_has_a_line_for_each_span(tmp_path):
    """`overwrite` empties it at the start."""
    path = tmp_path / "spans" / "all.jsonl"
    for _ in range(2):
        async with traced("file", project="p", output_path=str(path), mode="overwrite"):
            pass
    [line] = path.read_text().splitlines()
    assert json.loads(line)["resource"]["attributes"] == {"service.name": "p"}

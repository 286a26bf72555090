"""Spans through a collector that others wrote, Rotel, are those that a server gets from us directly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from conformance.environments import outside, python_of

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from fakes.otlp_server import OtlpServer, SeenSpan
from fakes.processes import free_port

SPANS = 2 * 8 * 2 + 2 * 8 * 2
"""Two epochs of eight rollouts and two validations on eight examples, each with its call."""


@asynccontextmanager
async def rotel(sends_to: str, log: Path) -> AsyncIterator[str]:
    """The collector's address for traces, all of which it sends on."""
    (agent,) = python_of("rotel").parents[1].glob("lib/python*/site-packages/rotel/rotel-agent")
    http, grpc = free_port(), free_port()
    options = {
        "otlp-http-endpoint": f"127.0.0.1:{http}",
        "otlp-grpc-endpoint": f"127.0.0.1:{grpc}",
        "otlp-exporter-endpoint": sends_to,
        "otlp-exporter-protocol": "http",
        "batch-timeout": "200ms",
        "exporter": "otlp",
        "pid-file": str(log.with_suffix(".pid")),
    }
    with log.open("wb") as file:
        words = [f"--{name}={value}" for name, value in options.items()]
        process = await asyncio.create_subprocess_exec(agent, "start", *words, env=outside(), stdout=file, stderr=file)
    try:
        await _listening(f"http://127.0.0.1:{http}/v1/traces", log)
        yield f"http://127.0.0.1:{http}/v1/traces"
    finally:
        process.terminate()
        await process.wait()


async def _listening(address: str, log: Path) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(30):
        while True:
            try:
                await client.post(address, headers={"content-type": "application/x-protobuf"})
            except httpx.TransportError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture
async def servers() -> AsyncIterator[tuple[OtlpServer, OtlpServer]]:
    async with OtlpServer() as direct, OtlpServer() as behind:
        yield direct, behind


async def test_a_collector_passes_on_what_it_got(tmp_path, servers):
    """Ids, parents, times, errors, attributes, events and resource of each span of a run."""
    direct, behind = servers
    async with (
        OpenAIServer(Coin(), fingerprint="v1") as model,
        rotel(behind.base_url, tmp_path / "rotel.log") as address,
    ):
        project = FinetuningProject(tmp_path, model)
        places = {"directly": direct.endpoint, "through": address}
        tracing = {name: {"_type": "otelcollector", "project": "p", "endpoint": url} for name, url in places.items()}
        project.config["general"] = {"telemetry": {"tracing": tracing}}
        with project.registered():
            await project.run(validation_dataset=str(project.held_out))
        for name in {span.name for span in direct.spans}:
            await behind.seen(name, len(direct.named(name)))
    assert len(direct.spans) == SPANS
    assert in_order(behind.spans) == in_order(direct.spans)


def in_order(spans: list[SeenSpan]) -> list[SeenSpan]:
    return sorted(spans, key=lambda span: span.id)

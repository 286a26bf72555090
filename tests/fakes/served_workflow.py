"""A workflow of the test behind a real socket in the test's event loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from fakes.running_server import running
from fakes.scripted_workflow import ScriptedWorkflow
from nat.config.load import load_config
from nat.front_end.app import create_app
from nat.rollout.served import opened_workflow


@asynccontextmanager
async def serving_file(config_file: Path, *, api_key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the served workflow of a YAML whose components are registered."""
    async with (
        opened_workflow(load_config(config_file)) as served,
        running(create_app(served, name="test", api_key=api_key)) as client,
    ):
        yield client


@asynccontextmanager
async def serving(scripted: ScriptedWorkflow, *, api_key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a scripted workflow, which is registered meanwhile."""
    with scripted.registered():
        async with serving_file(scripted.config_file, api_key=api_key) as client:
            yield client


def url_of(client: httpx.AsyncClient) -> str:
    return str(client.base_url).rstrip("/")

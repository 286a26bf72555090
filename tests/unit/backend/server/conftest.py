"""An HTTP client whose server runs in the same event loop, with a model."""

from collections.abc import Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from fakes.keys import KEY
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.model import LoadedModel
from nat.backend.server.app import create_app


@pytest.fixture(scope="session")
def worker(loaded: LoadedModel) -> Iterator[Worker]:
    worker = Worker(Engine(loaded, policy_version="tiny@4"))
    yield worker
    worker.close()


@pytest.fixture
def connect():
    """Open a client for a worker; further options go to the application."""

    @asynccontextmanager
    async def open_client(worker, *, headers=None, **options):
        app = create_app(worker, api_key=KEY, **options)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {KEY}"} if headers is None else headers
        async with httpx.AsyncClient(transport=transport, base_url="http://backend", headers=headers) as client:
            yield client

    return open_client


@pytest.fixture
async def client(connect, worker):
    """A client that finds the prefix cache empty, as after an update, whatever tests ran before."""
    worker.run_exclusive(lambda: None).result()
    async with connect(worker) as client:
        yield client

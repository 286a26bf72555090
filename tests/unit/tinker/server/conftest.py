"""Servers of Tinker's clients on a tiny model."""

import pytest

from fakes.tinker_client import Client
from fakes.tiny_fixtures import tiny_dir
from nat.backend.model_loader import load_model
from nat.tinker.options import TinkerServeOptions
from nat.tinker.server.models import TinkerModels

__all__ = ["tiny_dir"]


@pytest.fixture
def start(tiny_dir, tmp_path):
    """Open the models on a new base, as a start of the server does; all starts share a folder."""
    opened = []

    def start_one(**options):
        base = load_model(tiny_dir("qwen2"), device="cpu", dtype="float32")
        own = {"model": base.path, "served_model_name": "owner/tiny", "output_dir": tmp_path / "out", "lora_rank": 4}
        opened.append(TinkerModels(base, TinkerServeOptions(protocol="tinker", **(own | options))))
        return opened[-1]

    yield start_one
    for models in opened:
        models.worker.close()


@pytest.fixture
async def clients(start):
    """Clients of servers that are started one after the other on one folder."""
    made = []

    def connect(**options):
        made.append(Client(start(**options)))
        return made[-1]

    yield connect
    for each in made:
        await each.http.aclose()


@pytest.fixture
def client(clients):
    return clients()

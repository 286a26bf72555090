"""Backends whose model is on a fake Tinker server."""

import httpx
import pytest

from fakes.tinker_service import TYPES, FakeTinker
from fakes.tiny_fixtures import tiny_dir
from nat.backend.model_loader import load_model
from nat.tinker.options import TinkerRemoteOptions, TinkerServeOptions
from nat.tinker.remote.service import Service
from nat.tinker.server.models import TinkerModels

__all__ = ["tiny_dir"]


@pytest.fixture
def remote_options(tiny_dir, tmp_path):
    """The options of a backend on the fake server."""
    known = {"model": tiny_dir("qwen2"), "served_model_name": "tiny", "output_dir": tmp_path / "run"}
    server = {"tinker_url": "http://127.0.0.1:1", "base_model": "owner/tiny", "lora_rank": 4, "seed": 1}
    return lambda **more: TinkerRemoteOptions(**(known | server | more))


@pytest.fixture
def start(tiny_dir, tmp_path, remote_options):
    """Start a fake server with a folder that all starts share; gives the service."""
    opened = []

    def start_one(*, all_weights=False, **kind):
        base = load_model(tiny_dir("qwen2"), device="cpu", dtype="float32")
        own = {"model": base.path, "served_model_name": "owner/tiny", "output_dir": tmp_path / "out", "lora_rank": 4}
        opened.append(TinkerModels(base, TinkerServeOptions(protocol="tinker", all_weights=all_weights, **own)))
        client = FakeTinker(opened[-1], **kind)
        options, transport = remote_options(tinker_api_key="tml-key"), httpx.MockTransport(client.get)
        return Service(client, TYPES, options, transport)

    yield start_one
    for models in opened:
        models.worker.close()

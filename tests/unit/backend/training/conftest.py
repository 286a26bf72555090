"""A tiny model for the learner: written once per session, loaded anew for each test that changes it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.tiny_fixtures import load_again
from nat.backend.lora import LoraSettings
from nat.backend.model import LoadedModel


@pytest.fixture(scope="session")
def checkpoint(tiny_dir: Callable[[str], Path]) -> Path:
    return tiny_dir("qwen2")


@pytest.fixture
def loaded(checkpoint: Path) -> LoadedModel:
    return load_again(checkpoint, device="cpu")


@pytest.fixture
def loaded64(checkpoint: Path) -> LoadedModel:
    loaded = load_again(checkpoint, device="cpu")
    loaded.model.double()
    return loaded


@pytest.fixture
def lora(checkpoint: Path) -> LoadedModel:
    return load_again(checkpoint, device="cpu", lora=LoraSettings(rank=4))

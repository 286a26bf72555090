"""A tiny model for the learner: written once per session, loaded anew for each test that changes it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nat.backend.lora import LoraSettings
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model


@pytest.fixture(scope="session")
def checkpoint(tiny_dir: Callable[[str], Path]) -> Path:
    return tiny_dir("qwen2")


@pytest.fixture
def loaded(checkpoint: Path) -> LoadedModel:
    return load_model(checkpoint, device="cpu")


@pytest.fixture
def loaded64(checkpoint: Path) -> LoadedModel:
    loaded = load_model(checkpoint, device="cpu")
    loaded.model.double()
    return loaded


@pytest.fixture
def lora(checkpoint: Path) -> LoadedModel:
    return load_model(checkpoint, device="cpu", lora=LoraSettings(rank=4))

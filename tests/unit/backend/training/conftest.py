"""A tiny model for the learner: on disk once per session, loaded fresh for each test that changes it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fakes.tiny_model import make_tiny_model
from nat.backend.model import LoadedModel, LoraSettings, load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from a second thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


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


@pytest.fixture
def make_learner() -> Callable[[LoadedModel], Learner]:
    def make(loaded: LoadedModel) -> Learner:
        def start() -> torch.nn.Module:
            reference = load_model(loaded.path, device="cpu").model
            return reference.to(loaded.dtype)

        return Learner(loaded, Reference(loaded, start))

    return make

"""Fixtures for tests of the backend: tiny checkpoints, made once per session, and learners."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet

from fakes.tiny_model import make_tiny_model
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.loss import ByRow
from nat.backend.training.mismatch import Probe, served_logprobs
from nat.backend.training.reference import Reference

torch.set_num_threads(1)  # a second thread makes models of this size slower, most of all on a busy machine


@lru_cache(maxsize=4)
def _start_of(
    path: Path, dtype: torch.dtype, _files: tuple[tuple[str, int], ...]
) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The model of these files and a copy of its weights: one learner after the other may have it."""
    model = load_model(path, device="cpu").model.to(dtype)
    return model, {name: weight.clone() for name, weight in model.state_dict().items()}


def mostly_slow(names: Iterable[str], *quick: str) -> list[ParameterSet]:
    """Parameters of a test whose cases are marked `slow`, but for the `quick` ones."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(kind: str = "qwen2") -> Path:
        if kind not in made:
            made[kind] = make_tiny_model(tmp_path_factory.mktemp(kind) / "model", kind)
        return made[kind]

    return get


@pytest.fixture(scope="session")
def loaded(tiny_dir: Callable[[str], Path]) -> LoadedModel:
    """A model that tests must not change."""
    return load_model(tiny_dir("qwen2"))


@pytest.fixture
def make_learner() -> Callable[..., Learner]:
    def make(loaded: LoadedModel, sampler_score: Callable[..., ByRow] = served_logprobs) -> Learner:
        def start() -> torch.nn.Module:
            files = tuple(sorted((file.name, file.stat().st_mtime_ns) for file in loaded.path.iterdir()))
            model, state = _start_of(loaded.path, loaded.dtype, files)
            model.load_state_dict(state)
            return model

        return Learner(loaded, Reference(loaded, start), Probe(sampler_score))

    return make

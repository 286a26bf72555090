"""What a backend says of a planned run, and which model it refuses to load."""

import json
from pathlib import Path

import pytest

from nat.backend import forecast
from nat.backend.forecast import Forecaster, check_capacity
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.worker import Worker
from nat.errors import ModelNotSupported
from nat.sizing.forecast import ForecastRequest
from nat.wire.serving import ServeOptions

REQUEST = ForecastRequest(num_rollouts=64, chats=2)
QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}


@pytest.fixture
def worker(loaded):
    worker = Worker(Engine(loaded, policy_version="p@0", limits=EngineLimits()))
    yield worker
    worker.close()


@pytest.fixture
def forecaster(tiny_dir, worker) -> Forecaster:
    return Forecaster(ServeOptions(model=tiny_dir()), worker)


def test_the_configured_way_is_the_first(forecaster, loaded):
    """The others stand beside it, with what is free."""
    found = forecaster.forecast(REQUEST)
    assert found.memory[0].title == "all weights, float32"
    assert found.memory[0].parts["weights"] == loaded.num_parameters * 4
    assert len(found.memory) == 4
    assert (found.place, found.row_tokens, found.fits) == (
        "trains on cpu; samples on cpu",
        min(loaded.max_seq_length, 4096),
        True,
    )


def test_the_disk_is_that_of_the_checkpoints(forecaster, loaded):
    """The newest one with two moments of each weight, the weights of the one before and of the best, and the model."""
    found, weights = forecaster.forecast(REQUEST), loaded.num_parameters * 4
    assert found.checkpoint == 3 * weights
    assert found.disk == found.checkpoint + 2 * weights + weights


def test_a_model_that_the_machine_cannot_hold_is_not_loaded(tiny_dir, tmp_path, monkeypatch):
    """The error has the bytes and what would fit; a folder that cannot be read is left to the loader."""
    options = ServeOptions(model=tiny_dir(), output_dir=tmp_path)
    check_capacity(options)
    check_capacity(options.model_copy(update={"model": Path("missing")}))
    monkeypatch.setattr(forecast, "total_bytes", lambda _: 10**6)
    with pytest.raises(ModelNotSupported, match=r"needs \d+ MB at least .* this machine has 1 MB") as caught:
        check_capacity(options)
    assert "smaller model" in str(caught.value)


def test_a_model_that_only_serves_needs_less(monkeypatch, tmp_path):
    """Weights alone fit where their training does not."""
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    monkeypatch.setattr("nat.sizing.shape.num_parameters", lambda _: 7_600_000_000)
    monkeypatch.setattr(forecast, "total_bytes", lambda _: 80 * 10**9)
    options = ServeOptions(model=tmp_path, device="cpu", dtype="bfloat16")
    check_capacity(options)
    with pytest.raises(ModelNotSupported, match=r"7\.6 billion weights, all weights") as caught:
        check_capacity(options.model_copy(update={"output_dir": tmp_path}))
    assert "these fit: LoRA" in str(caught.value)

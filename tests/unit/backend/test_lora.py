"""Several adapters on one base compute as if alone, and the base as if without adapters."""

import pytest
import torch

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.export import merged, write_adapter
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.training import TrainingConfig

CONFIG = TrainingConfig(learning_rate=1e-2, max_logprob_difference=100)
ROWS = PackedRows.of([[5, 6, 7, 8], [9, 10]])


@pytest.fixture(params=["qwen2", "gpt2"])
def base(tiny_dir, request):
    return load_model(tiny_dir(request.param), device="cpu")


@torch.no_grad()
def logits(adapters, adapter):
    adapters.activate(adapter)
    return packed_logits(adapters.base.model, ROWS)


def train(adapters, adapter, seed=0):
    adapters.activate(adapter)
    loaded = adapter.loaded
    reference = Reference(loaded, lambda: loaded.model)
    learner = Learner(loaded, reference)
    learner.update(random_groups(loaded, seed=seed), resolve(CONFIG))


def test_each_adapter_computes_what_its_merged_model_computes_alone(base):
    """Two trained adapters of different rank give the outputs of their merged models in turn; the base is unchanged."""
    before = packed_logits(base.model, ROWS).detach()
    adapters = Adapters(base)
    pair = [adapters.create(LoraSettings(rank, 16), seed=rank) for rank in (2, 4)]
    assert all(torch.equal(logits(adapters, adapter), before) for adapter in pair)
    for seed, adapter in enumerate(pair):
        train(adapters, adapter, seed)
    for adapter in [*pair, *pair]:
        alone = merged(adapter.loaded)
        found = logits(adapters, adapter)
        torch.testing.assert_close(found, packed_logits(alone, ROWS), atol=1e-4, rtol=1e-4)
        assert not torch.allclose(found, before, atol=1e-3)
        assert torch.equal(logits(adapters, None), before)
    assert not torch.allclose(*(logits(adapters, adapter) for adapter in pair), atol=1e-3)


def test_an_adapter_comes_back_from_its_folder_beside_others(base, tmp_path):
    """An adapter that one server saved gives another the same bits in peft's layout, whatever else is loaded."""
    adapters = Adapters(base)
    first, second = (adapters.create(LoraSettings(2), seed=seed) for seed in (1, 2))
    train(adapters, second)
    write_adapter(second.loaded, tmp_path / "adapter")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {p.name for p in (tmp_path / "adapter").iterdir()}
    again = adapters.load(tmp_path / "adapter")
    assert again.settings == LoraSettings(2, 32)
    assert torch.equal(logits(adapters, again), logits(adapters, second))
    adapters.remove(again)
    assert not torch.equal(logits(adapters, first), logits(adapters, second))

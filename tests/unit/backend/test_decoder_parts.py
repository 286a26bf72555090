"""What is adapted and trained of a model with experts, or with a tower for images."""

import logging

import pytest
import torch

from fakes.families import make_tiny_family
from fakes.tiny_fixtures import mostly_slow
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.export import write_adapter
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.training import TrainingConfig

ROUTED = {
    "afmoe": {},
    "hunyuan_v1_moe": {},
    "jetmoe": {},
    "mixtral": {},
    "phimoe": {"sliding_window": None},
    "qwen2_moe": {"use_sliding_window": False},
    "qwen3_moe": {},
}


def train(loaded):
    learner = Learner(loaded, Reference(loaded, lambda: loaded.model))
    return learner.update(random_groups(loaded), resolve(TrainingConfig(learning_rate=1e-2, warmup_steps=0)))


@pytest.mark.parametrize("family", mostly_slow(ROUTED, "mixtral"))
def test_an_adapter_of_experts_is_on_the_attention_alone(tmp_path, caplog, family):
    """Routers and experts, shared ones too, stay as they are, which the log says; peft would adapt them."""
    caplog.set_level(logging.INFO, "nat.backend.lora")
    loaded = load_model(make_tiny_family(tmp_path, family, **ROUTED[family]), device="cpu", lora=LoraSettings(2))
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in loaded.trainable_parameters()}
    assert layers in ({"q_proj", "k_proj", "v_proj", "o_proj"}, {"kv_proj"})
    assert "its routers and experts" in caplog.text


def test_an_adapter_of_a_model_for_images_is_on_its_decoder(tmp_path):
    """The tower has layers of the same names; names that peft shortens for many layers do not reach it either."""
    folder = make_tiny_family(tmp_path / "model", "gemma3", num_hidden_layers=4, layer_types=None)
    adapters = Adapters(load_model(folder, device="cpu"))
    for seed in (0, 1):
        names = adapters.create(LoraSettings(2), seed=seed).loaded.trainable_parameters()
        assert len(names) == 4 * 7 * 2
        assert not any("vision" in name or "projector" in name for name in names)
    before = adapters.create(LoraSettings(2), seed=2)
    train(before.loaded)
    write_adapter(before.loaded, tmp_path / "adapter")
    again = adapters.load(tmp_path / "adapter").loaded.trainable_parameters()
    for name, weight in before.loaded.trainable_parameters().items():
        assert torch.equal(weight, again[name])

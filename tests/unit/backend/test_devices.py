"""What must hold on a GPU as on a CPU; the tests marked `cuda` are skipped where there is none."""

import pytest
import torch

from fakes.training_batches import sampled_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.memory import chosen_device
from nat.backend.model_loader import load_model
from nat.errors import ModelNotSupported
from nat.wire.training import TrainingConfig

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request):
    return request.param


@pytest.mark.parametrize(
    "options",
    [{}, {"lora": LoraSettings(4)}],
    ids=["all weights", "lora"],
)
def test_sampler_and_learner_agree_in_bfloat16(tiny_dir, make_learner, device, options):
    """An update of sampled answers passes the alarms on both sides of it: before, and with the new weights."""
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="bfloat16", **options)
    before = {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}
    metrics = make_learner(loaded).update(sampled_groups(loaded), resolve(TrainingConfig(learning_rate=1e-3)))
    assert metrics["logprob_diff_mean"] < 0.05
    assert metrics["served_diff_mean"] < 0.05
    assert any((p != before[name]).any() for name, p in loaded.trainable_parameters().items())


def test_a_device_that_is_not_here_is_named(monkeypatch):
    """With those that there are."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ModelNotSupported, match=r"device cuda:2: torch sees 2 CUDA devices here"):
        chosen_device("cuda:2")


def test_four_bits_need_cuda_and_bitsandbytes(tiny_dir, monkeypatch):
    """Before the weights are read, by the name of the option, with what to do."""
    with pytest.raises(ModelNotSupported, match=r"load_in_4bit: the model is on cpu") as refused:
        load_model(tiny_dir("qwen2"), device="cpu", lora=LoraSettings(4), load_in_4bit=True)
    assert "leave load_in_4bit out" in refused.value.hint
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("nat.backend.model_loader.missing_packages", lambda names: names)
    with pytest.raises(ModelNotSupported, match="bitsandbytes, which is not installed"):
        load_model(tiny_dir("qwen2"), device="cuda", lora=LoraSettings(4), load_in_4bit=True)


@pytest.mark.parametrize("device", [CUDA])
def test_an_adapter_is_trained_on_a_base_of_four_bits(tiny_dir, make_learner, device):
    """Sampler and learner agree, and the codes stay as they are."""
    pytest.importorskip("bitsandbytes")
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="bfloat16", lora=LoraSettings(4), load_in_4bit=True)
    assert loaded.in_four_bits
    metrics = make_learner(loaded).update(sampled_groups(loaded), resolve(TrainingConfig(learning_rate=1e-3)))
    assert max(metrics["logprob_diff_mean"], metrics["served_diff_mean"]) < 0.05

"""The sampler's decoder layers give what transformers' layers give."""

import pytest
import torch
from transformers import AutoModelForCausalLM, GraniteConfig

from fakes.tiny_model import tiny_tokenizer
from nat.backend import packed_linear
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.lean_layers import LeanLayer
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.model_path import lean
from nat.backend.products import with_mkl, with_onednn

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()),
    reason="this torch lacks a library",
)
ROWS = PackedRows.of([[5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [8, 9, 10]])  # longer than the window of Mistral
KEPT = torch.arange(13)


@pytest.fixture(autouse=True, params=[with_mkl, with_onednn])
def packer(request, monkeypatch):
    """How weights are reordered, if they are; small ones too, so that those of tiny models are merged."""
    monkeypatch.setattr(packed_linear, "SMALLEST_PACKED", 1)
    monkeypatch.setattr(packed_linear, "packer_of_float32", lambda: request.param)


@pytest.fixture
def calls(monkeypatch):
    """The names of the layers that were computed leanly."""
    seen, forward = [], LeanLayer.forward

    def counted(self, *inputs, **named):
        seen.append(type(self.layer).__name__)
        return forward(self, *inputs, **named)

    monkeypatch.setattr(LeanLayer, "forward", counted)
    return seen


def both(loaded, calls):
    """The sampler's logits and transformers' own, and how many layers were lean for the first."""
    calls.clear()
    with torch.no_grad():
        sampled, count = loaded.sampler_logits(ROWS, KEPT), len(calls)
        return sampled, packed_logits(loaded.model, ROWS, KEPT), count


def assert_lean(loaded, calls, tolerance=1e-4):
    sampled, usual, count = both(loaded, calls)
    torch.testing.assert_close(sampled, usual, atol=tolerance, rtol=tolerance)
    assert count == len(loaded.model.base_model.layers)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "mistral"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_the_layers_of_known_families_are_lean(tiny_dir, calls, kind, dtype, tolerance):
    """Biases of Qwen2, norms of Qwen3's heads and Mistral's window included."""
    assert_lean(load_model(tiny_dir(kind), dtype=dtype), calls, tolerance)


@pytest.mark.parametrize("kind", ["gemma3", "gpt2"])
def test_other_layers_are_computed_by_transformers(tiny_dir, calls, kind):
    """Gemma norms after its products too, and GPT-2 has other parts."""
    sampled, usual, count = both(load_model(tiny_dir(kind)), calls)
    torch.testing.assert_close(sampled, usual, atol=1e-4, rtol=1e-4)
    assert count == 0


@pytest.mark.slow
def test_a_layer_of_the_same_parts_that_computes_something_else_is_found(tmp_path):
    """Granite has Llama's parts, and scales what each of them adds."""
    tokenizer = tiny_tokenizer()
    config = GraniteConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        residual_multiplier=0.5,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert not lean(loaded.model)
    config.residual_multiplier = 1.0
    for layer in loaded.model.base_model.layers:
        layer.residual_multiplier = 1.0
    assert len(lean(loaded.model)) == 2


def test_an_adapter_that_comes_later_is_used(tiny_dir, calls):
    """It replaces the linear layers, whose merged products then give each layer its part; without it they are one."""
    adapters = Adapters(load_model(tiny_dir("llama")))
    with torch.no_grad():
        base = adapters.base.sampler_logits(ROWS, KEPT)
    loaded = adapters.create(LoraSettings(rank=2), seed=0).loaded
    for name, weight in loaded.trainable_parameters().items():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    assert_lean(loaded, calls)
    changed = both(loaded, calls)[0]
    assert (changed - base).abs().max() > 0.1
    adapters.activate(None)
    torch.testing.assert_close(both(adapters.base, calls)[0], base, atol=1e-5, rtol=1e-5)

"""In bfloat16 the sum of the layers and the logits stay in float32, where the model allows it."""

import copy

import pytest
import torch
from transformers import AutoModelForCausalLM, Olmo2Config

from fakes.families import make_tiny_family
from fakes.tiny_model import make_tiny_model, tiny_tokenizer
from nat.backend import model_path, packed_linear
from nat.backend.attention import PACKED_ATTENTION, PackedRows, packed_logits
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model, load_weights
from nat.backend.model_path import widen
from nat.backend.training.logprobs import token_scores
from nat.backend.wide_residual import widened

ROWS = PackedRows.of([[5, 6, 7, 8], [8, 9, 10]])
KEPT = torch.arange(7)
WIDE = ["qwen2", "llama"]


def logits(model):
    with torch.no_grad():
        return packed_logits(model, ROWS)


def streams(model):
    """The dtypes that go into each decoder layer, and into its products."""
    seen = {"layers": set(), "products": set()}
    for module in model.base_model.modules():
        if module in list(model.base_model.layers):
            module.register_forward_pre_hook(lambda _, inputs: seen["layers"].add(inputs[0].dtype))
        elif isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs: seen["products"].add(inputs[0].dtype))
    return seen


@pytest.mark.parametrize("kind", WIDE)
def test_sums_are_float32_and_products_bfloat16(tiny_dir, kind):
    """Each layer adds to a float32 sum, and each of its products takes bfloat16; the logits are float32."""
    loaded = load_model(tiny_dir(kind), dtype="bfloat16")
    seen = streams(loaded.model)
    assert logits(loaded.model).dtype == torch.float32
    assert seen == {"layers": {torch.float32}, "products": {torch.bfloat16}}
    assert loaded.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", WIDE)
def test_it_is_nearer_to_float32(tmp_path, kind):
    """In a deep model, whose sum is much larger than what a layer adds, the logits' error is less than half."""
    make_tiny_model(tmp_path, kind, hidden=64, layers=24, spread=0.03)
    plain, wide = load_weights(tmp_path, torch.bfloat16), load_model(tmp_path, dtype="bfloat16").model
    exact = copy.deepcopy(plain).float()
    for model in (plain, exact):
        model.train(mode=False).set_attn_implementation(PACKED_ATTENTION)
    errors = [(logits(model).float() - logits(exact)).abs().mean() for model in (wide, plain)]
    assert errors[0] < errors[1] / 2


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2)])
def test_sampler_and_learner_compute_the_same_logits(tiny_dir, lora, monkeypatch):
    """With the same layers, the learner's log probabilities are those of the sampler's logits in float32."""
    monkeypatch.setattr(model_path, "lean", lambda _: [])
    loaded = load_model(tiny_dir("qwen2"), dtype="bfloat16", lora=lora)
    targets = torch.tensor([6, 7, 8, 1, 9, 10, 1])
    with torch.no_grad():
        scores = token_scores(loaded.model, ROWS, KEPT, targets)
        expected = loaded.sampler_logits(ROWS, KEPT).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(scores.logprobs_K, expected, atol=1e-5, rtol=1e-5)


def test_weights_get_their_gradients_in_their_own_precision(tiny_dir):
    """Each weight of a bfloat16 model has a gradient in bfloat16, near the one that float32 gives."""
    gradients = []
    for dtype in ("bfloat16", "float32"):
        model = load_model(tiny_dir("qwen2"), dtype=dtype).model
        token_scores(model, ROWS, KEPT, torch.tensor([6, 7, 8, 1, 9, 10, 1])).logprobs_K.sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    rounded, exact = gradients
    for name, gradient in rounded.items():
        assert gradient.dtype == torch.bfloat16
        assert (gradient - exact[name]).norm() < 0.05 * exact[name].norm(), name


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_the_sampler_reorders_the_head_in_float32(tiny_dir, monkeypatch):
    """A head that is large enough to be reordered gives float32 logits from the reordered weights too."""
    monkeypatch.setattr(model_path, "lean", lambda _: [])
    head = load_weights(tiny_dir("qwen2"), torch.bfloat16).get_output_embeddings()
    monkeypatch.setattr(packed_linear, "SMALLEST_PACKED", head.weight.numel())  # no other layer is as large
    loaded = load_model(tiny_dir("qwen2"), dtype="bfloat16")
    reordered = loaded.sampler_logits(ROWS, KEPT)
    assert reordered.dtype == torch.float32
    torch.testing.assert_close(reordered, logits(loaded.model), atol=1e-5, rtol=1e-5)


def test_a_model_with_a_tower_has_a_wide_end_too(tmp_path, monkeypatch):
    """Its last norm, inside the text part, gives float32 to the head, reordered or not."""
    monkeypatch.setattr(packed_linear, "SMALLEST_PACKED", 0)
    make_tiny_family(tmp_path, "gemma3")
    loaded, seen = load_model(tmp_path, dtype="bfloat16"), set()
    loaded.model.get_decoder().norm.register_forward_hook(lambda _, __, output: seen.add(output.dtype))
    torch.testing.assert_close(loaded.sampler_logits(ROWS, KEPT), logits(loaded.model), atol=1e-5, rtol=1e-5)
    assert seen == {torch.float32}


def test_a_reordered_head_takes_bfloat16(tiny_dir, monkeypatch):
    """A model that narrows what goes into its head gets logits all the same."""
    monkeypatch.setattr(packed_linear, "SMALLEST_PACKED", 0)
    loaded = load_model(tiny_dir("qwen2"), dtype="bfloat16")
    loaded.model.model.norm.register_forward_hook(lambda _, __, output: output.bfloat16())
    torch.testing.assert_close(loaded.sampler_logits(ROWS, KEPT), logits(loaded.model), atol=1e-5, rtol=1e-5)


def test_a_model_with_layer_norms_is_left_alone(tiny_dir):
    """GPT-2 has no RMS norms, so nothing of it changes."""
    model = load_weights(tiny_dir("gpt2"), torch.bfloat16)
    assert widened(model) is None


def test_a_model_that_norms_after_its_products_is_as_before(tmp_path):
    """OLMo 2 multiplies the sum itself, which then has to be in bfloat16: every change is taken back."""
    tokenizer = tiny_tokenizer()
    config = Olmo2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path, dtype="bfloat16")
    assert logits(loaded.model).dtype == torch.bfloat16
    assert "forward" not in vars(loaded.model.get_output_embeddings())
    assert widen(loaded.model) is None


def test_float32_is_left_alone(tiny_dir):
    """There everything is float32 anyway."""
    assert widen(load_weights(tiny_dir("llama"), torch.float32)) is None

"""In bfloat16 the sum of the layers and the logits stay in float32, where the model allows it."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Olmo2Config

from fakes.tiny_model import tiny_tokenizer
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.model_loader import load_model
from nat.backend.model_path import widen

ROWS = PackedRows.of([[5, 6, 7, 8], [8, 9, 10]])
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

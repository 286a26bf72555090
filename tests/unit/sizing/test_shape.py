"""Shapes that are read from a model's configuration."""

import pytest
import torch
from bench.shapes import SHAPES
from transformers import AutoModelForCausalLM, GPT2Config

from fakes.families import tiny_family
from nat.backend.decoder_parts import decoder_linears
from nat.sizing.shape import Experts, ModelShape


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_weights_are_counted_from_the_configuration(name: str):
    """Biases and the norms of heads aside, which are few, the count is that of transformers' model."""
    config = SHAPES[name]()
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    few = ("bias", "q_norm.weight", "k_norm.weight")
    counted = sum(p.numel() for key, p in model.named_parameters() if not key.endswith(few))
    assert ModelShape.of_config(config.to_dict()).num_parameters == counted


def test_gpt2_has_other_names_and_no_gate():
    """`n_embd`, `n_head` and `n_layer`, and two matrices in the feed-forward network."""
    shape = ModelShape.of_config(GPT2Config(n_embd=64, n_head=4, n_layer=2, vocab_size=100).to_dict())
    assert (shape.hidden, shape.heads, shape.layers, shape.intermediate, shape.gated) == (64, 4, 2, 256, False)


def test_a_configuration_without_sizes_is_refused():
    """The error names what is missing."""
    with pytest.raises(KeyError, match="hidden_size"):
        ModelShape.of_config({"vocab_size": 10})


@pytest.mark.parametrize("wrong", [{"n_layer": 0}, {"n_head": -4}, {"vocab_size": 0}, {"n_embd": -64}])
def test_a_size_below_one_is_refused(wrong: dict[str, int]):
    """A model of such a size would fit anywhere."""
    sizes = {"vocab_size": 100, "n_embd": 64, "n_head": 4, "n_layer": 2, "head_dim": 16}
    with pytest.raises(ValueError, match="a size below 1"):
        ModelShape.of_config(sizes | wrong)


_EXACT = ("dots1", "ernie4_5_moe", "exaone_moe", "glm4_moe", "qwen2_moe", "qwen3_moe", "solar_open")
_OWN_WIDTH = ("flex_olmo", "granitemoe", "minimax_m2", "mixtral", "olmoe", "phimoe")
"""Families whose experts have the width of the configuration's feed-forward network."""


@pytest.mark.parametrize("family", [*_EXACT, *_OWN_WIDTH])
def test_experts_are_counted_from_the_configuration(family: str):
    """Routers, shared experts and the first dense layers included, the count is that of transformers' model."""
    changes = {"moe_intermediate_size": None} if family in _OWN_WIDTH else {}
    model = tiny_family(family, **changes)
    counted = sum(p.numel() for key, p in model.named_parameters() if not key.endswith("bias"))
    shape = ModelShape.of_config(model.config.to_dict())
    assert shape.num_parameters == pytest.approx(counted, rel=0.02)
    linear = [model.get_submodule(name) for name in decoder_linears(model)]
    assert shape.linear_weights == sum(each.weight.numel() for each in linear)
    assert shape.adapter_weights(1) == sum(sum(each.weight.shape) for each in linear)


def test_a_token_goes_through_few_experts():
    """Activations count those that a token is sent to, and the shared ones."""
    shape = ModelShape.of_config(tiny_family("glm4_moe").config.to_dict())
    assert shape.experts == Experts(count=4, active=2, width=16, shared=16, dense_layers=1)
    assert (shape.active_width, shape.dispatched) == ((32 + 2 * 16 + 16) / 2, 2)

"""Shapes that are read from a model's configuration."""

import pytest
import torch
from bench.shapes import SHAPES
from transformers import AutoModelForCausalLM, GPT2Config

from nat.sizing.shape import ModelShape


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

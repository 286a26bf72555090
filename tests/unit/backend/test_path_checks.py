"""A model whose sampler and learner do not compute alike is refused before a rollout is paid."""

from dataclasses import replace

import pytest
import torch

from nat.backend.model_checks import check_forward
from nat.backend.model_loader import load_model
from nat.backend.path_checks import check_paths
from nat.errors import ModelNotSupported


def test_what_fails_on_one_path_is_a_refusal(tiny_dir):
    """The learner calls the decoder alone, and the sampler has a budget of keys: both run once at the start."""
    loaded = load_model(tiny_dir("qwen2"), device="cpu")
    check_paths(loaded)
    with pytest.raises(ModelNotSupported, match="Qwen2ForCausalLM cannot be sampled: ValueError"):
        check_paths(replace(loaded, heads=[]))
    loaded.model.__class__ = type("Odd", (type(loaded.model),), {"base_model_prefix": "lm_head"})
    with pytest.raises(ModelNotSupported, match="Odd cannot be trained: TypeError"):
        check_paths(loaded)


def test_a_sampler_that_differs_from_the_learner_is_found(tiny_dir):
    """Two layers that share their cache compute alike without one."""
    loaded = load_model(tiny_dir("llama"), device="cpu")
    for layer in loaded.model.model.layers:
        layer.self_attn.layer_idx = 0
    check_forward(loaded.model)
    with pytest.raises(ModelNotSupported, match="other log probabilities in the sampler than in the learner"):
        check_paths(loaded)
    assert torch.is_grad_enabled()

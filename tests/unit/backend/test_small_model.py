"""Layers that are judged without weights: the verdict is the loader's."""

import pytest
from transformers import CONFIG_MAPPING

from fakes.families import PLAIN
from nat.backend.model_loader import context_limit
from nat.backend.small_model import count_weights, judge_layers, small_model

TRAINED = ("qwen2", "qwen3", "llama", "mistral", "gemma3_text", "gpt2", "phi3", "qwen3_moe", "mixtral", "glm4_moe")
OTHER = ("vaultgemma", "gemma2", "gpt_oss", "jamba", "falcon", "deepseek_v32")


@pytest.mark.parametrize("family", TRAINED)
def test_a_family_that_trains_is_tried(family: str):
    """The configuration of transformers' full-sized model is shrunk, and sampler and learner agree on it."""
    config = CONFIG_MAPPING[family]()
    layers, plain = judge_layers(config, context_limit(config, None))
    assert (layers.refusal, layers.notice, layers.untried, plain) == (None, None, None, None)


@pytest.mark.parametrize("family", OTHER)
def test_a_family_of_the_plain_path_is_told_why(family: str):
    """The words are those of the loader, which would see the weights first."""
    layers, plain = judge_layers(CONFIG_MAPPING[family](), 512)
    assert (layers.refusal, layers.untried) == (None, None)
    assert PLAIN[family] in layers.notice
    assert plain.why in layers.notice


def test_each_kind_of_layer_is_in_the_small_model():
    """A layer of each kind stays, in their order, and the heads keep their size."""
    config = CONFIG_MAPPING["gemma3_text"](num_hidden_layers=26, sliding_window=512)
    small = small_model(config).config
    assert small.layer_types == ["sliding_attention", "full_attention"]
    assert (small.num_hidden_layers, small.head_dim, small.sliding_window) == (2, config.head_dim, 512)
    assert small.hidden_size == small.num_attention_heads * config.head_dim
    assert config.num_hidden_layers == 26


def test_a_class_that_cannot_be_shrunk_is_judged_by_its_configuration():
    """It is no refusal: the loader may find that it trains."""
    config = CONFIG_MAPPING["qwen3"](hidden_act="none such")
    layers, _ = judge_layers(config, 512)
    assert layers.refusal is None
    assert "none such" in layers.untried


def test_weights_are_counted_without_their_memory():
    """The count is that of the class, tied weights once."""
    tied, apart = (CONFIG_MAPPING["qwen3"](tie_word_embeddings=each) for each in (True, False))
    assert count_weights(apart) - count_weights(tied) == tied.vocab_size * tied.hidden_size
    assert count_weights(tied) > 10**9

"""Models that would compute packed batches wrongly, or fail in one of two paths, are refused with a reason."""

import pytest
from transformers import Mistral3Config, Qwen2Config

from fakes.families import make_tiny_family, tiny_family
from fakes.tiny_model import tiny_tokenizer
from nat.backend.attention import HeadShape
from nat.backend.model_checks import check_forward, check_layers, check_positions
from nat.backend.model_loader import load_model
from nat.backend.path_checks import load_checked_model
from nat.errors import ModelNotSupported

WIDE = {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 40}


def windowed():
    """A model with a window that no row of the probe reaches."""
    return tiny_family("qwen2", **WIDE).eval()


@pytest.mark.parametrize("planted", [39, 41, None])
def test_a_window_that_the_attention_does_not_get_is_found(planted):
    """Also if it differs by one token and is wider than all rows of the probe; the windows stay as they were."""
    model = windowed()
    assert check_forward(model) == [HeadShape(4, 2, 8, 8)] * 2
    attention = model.model.layers[1].self_attn
    attention.sliding_window = planted
    with pytest.raises(ModelNotSupported, match=r"Qwen2ForCausalLM masks a sliding window of 4[01] tokens"):
        check_forward(model)
    assert attention.sliding_window == planted
    assert model.model.layers[0].self_attn.sliding_window == model.config.sliding_window == 40
    check_forward(model, max_seq_length=39 if planted is None else planted - 1)


@pytest.mark.parametrize(("family", "switch"), [("qwen2_moe", {"use_sliding_window": True}), ("phimoe", {})])
def test_a_window_that_no_sequence_reaches_does_not_matter(tmp_path, family, switch):
    """These pass it to nothing, and have 131072 tokens in public checkpoints; longer sequences take the plain path."""
    folder = make_tiny_family(tmp_path, family, sliding_window=40, **switch)
    assert "masks a sliding window of 40 tokens" in load_checked_model(folder, device="cpu").plain.why
    assert load_model(folder, device="cpu", max_seq_length=40).plain is None


def check_all(config):
    check_layers(config)
    check_positions(config, 512)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["linear_attention", "full_attention"]}, "linear_attention; supported are full and sliding"),
        ({"layer_types": ["chunked_attention", "full_attention"]}, "kind chunked_attention"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic rotary"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope", "factor": 2.0}}}, "longrope rotary"),
    ],
)
def test_models_that_cannot_be_packed_are_found_by_their_configuration(change, message):
    """Chunked, recurrent and length-dependent ones, before anything is computed."""
    config = Qwen2Config(num_hidden_layers=2, max_position_embeddings=512)
    for key, value in change.items():
        for each in (value, *(value.values() if isinstance(value, dict) else ())):
            if isinstance(each, dict) and "rope_type" in each:
                each["original_max_position_embeddings"] = 32
        setattr(config, key, value)
    with pytest.raises(ModelNotSupported, match=message):
        check_all(config)


def test_what_a_configuration_rules_out_is_refused_before_weights_are_read(tmp_path):
    """The folder has none here; nobody is told to copy them."""
    Mistral3Config().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelNotSupported, match="no causal language model for mistral3") as refusal:
        load_model(tmp_path, device="cpu")
    assert "such as Qwen2" in refusal.value.hint
    assert "copy" not in refusal.value.hint

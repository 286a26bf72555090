"""A model whose sampler and learner do not compute alike is refused before a rollout is paid."""

from dataclasses import replace

import pytest
import torch

from fakes.families import make_tiny_family
from nat.backend.model_checks import check_forward
from nat.backend.model_loader import load_model
from nat.backend.path_checks import check_paths, load_checked_model
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cache_that_forgets_what_came_before_a_chunk_continues_tokens_alone(tmp_path, dtype):
    """Jamba's state is not continued by chunks; in bfloat16, too, where rounding alone might explain the difference."""
    folder = make_tiny_family(tmp_path / "model", "jamba", max_position_embeddings=512)
    assert load_checked_model(folder, device="cpu", dtype=dtype).plain.continues == "tokens"


def test_a_model_whose_paths_agree_row_by_row_alone_says_so_and_why(tmp_path, caplog):
    """Two calls of attention in a layer share one cache in packed sampling; it is one warning."""
    loaded = load_checked_model(make_tiny_family(tmp_path / "model", "diffllama"), device="cpu")
    assert "other log probabilities in the sampler" in loaded.plain.why
    (said,) = [record.message for record in caplog.records if record.name == "nat.backend.path_checks"]
    assert said.startswith(f"DiffLlamaForCausalLM takes the plain path, because {loaded.plain.why}.")


def test_a_model_that_no_path_computes_is_refused(tmp_path, monkeypatch):
    """The refusal is that of the last way, in which each step computes its whole sequence."""
    monkeypatch.setattr("nat.backend.path_checks.served_logprobs", lambda _, rows, __: ones(rows))
    with pytest.raises(ModelNotSupported, match="other log probabilities in the sampler than in the learner"):
        load_checked_model(make_tiny_family(tmp_path / "model", "gpt_oss"), device="cpu")


def ones(rows):
    """Log probabilities that no model gives."""
    return {row.index: torch.ones(len(row.targets)) for row in rows}

"""A model whose sampler and learner do not compute alike is refused before a rollout is paid."""

import pytest
import torch

from fakes.families import make_tiny_family
from nat.backend.model_checks import check_forward
from nat.backend.model_loader import load_model
from nat.backend.path_checks import check_paths, load_checked_model
from nat.errors import ModelNotSupported
from nat.wire.serving import NOTICES


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
    (said,) = [record.message for record in caplog.records if record.name == NOTICES]
    assert said.startswith(f"DiffLlamaForCausalLM takes the plain path, because {loaded.plain.why}.")

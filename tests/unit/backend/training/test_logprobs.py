"""Log probabilities of the learner and of the sampler."""

import pytest
import torch

from fakes.tiny_model import make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.logprobs import token_scores
from nat.backend.training.micro_batch import make_micro_batch
from nat.backend.training.mismatch import served_logprobs
from nat.wire.training import TrainingConfig


@pytest.mark.parametrize("kind", ["qwen2", "gpt2", "gemma3"])
def test_chunks_give_the_same_scores_and_gradients(tmp_path, kind):
    """The output layer in chunks of logits equals the model's own, with soft caps too."""
    model = load_model(make_tiny_model(tmp_path, kind), device="cpu").model.double()
    packed = PackedRows.of([[1, 2, 3, 4, 5], [6, 7, 8]])
    keep, targets = torch.tensor([0, 2, 3, 5, 7]), torch.tensor([2, 4, 5, 7, 9])
    found = []
    for max_logits in (10**9, 600):
        model.zero_grad()
        scores = token_scores(model, packed, keep, targets, max_logits=max_logits)
        scores.logprobs_K.sum().backward()
        found.append((scores, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}))
    (whole, gradients), (chunked, chunked_gradients) = found
    assert torch.allclose(whole.logprobs_K, chunked.logprobs_K, atol=1e-12)
    assert torch.allclose(whole.entropy_K, chunked.entropy_K, atol=1e-12)
    assert all(torch.allclose(g, chunked_gradients[name], atol=1e-12) for name, g in gradients.items())


def test_the_sampler_path_scores_like_the_learner(loaded):
    """Prefill, continuation and decoding with a cache give the learner's log probabilities."""
    rows = make_batch(random_groups(loaded), resolve(TrainingConfig())).rows
    batch = make_micro_batch(rows, {}, loaded.device)
    with torch.no_grad():
        scores = token_scores(loaded.model, batch.packed, batch.keep_K, batch.targets_K).logprobs_K
    served = served_logprobs(loaded, rows)
    assert torch.allclose(scores, torch.cat([served[row.index] for row in rows]), atol=1e-5)

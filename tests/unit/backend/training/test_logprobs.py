"""Log probabilities of the learner and of the sampler."""

import pytest
import torch

from fakes.tiny_model import make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model
from nat.backend.training.batch import Row, make_batch
from nat.backend.training.logprobs import linear_head, token_scores
from nat.backend.training.micro_batch import make_micro_batch
from nat.backend.training.mismatch import served_logprobs
from nat.wire.training import TrainingConfig

CASES = [("qwen2", None), ("llama", None), ("gpt2", None), ("gemma3", None), ("gemma3", 2.0)]


@pytest.mark.parametrize(("kind", "cap"), CASES)
@pytest.mark.parametrize("max_logits", [10**9, 600])
def test_scores_and_gradients_are_those_of_the_models_logits(tmp_path, kind, cap, max_logits):
    """Blocks of the vocabulary, and chunks of tokens for a head with a soft cap, equal the formula on all logits."""
    model = load_model(make_tiny_model(tmp_path, kind), device="cpu").model.double()
    if cap is not None:
        model.config.final_logit_softcapping = cap
    packed = PackedRows.of([[1, 2, 3, 4, 5], [6, 7, 8]])
    keep, targets = torch.tensor([0, 2, 3, 5, 7]), torch.tensor([2, 4, 5, 7, 9])
    temperatures = torch.tensor([1.0, 0.5, 2.0, 1.0, 0.7], dtype=torch.float64)
    scores = token_scores(model, packed, keep, targets, temperatures, max_logits=max_logits)
    weighted(scores.logprobs_K).backward()
    got = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    logprobs = (packed_logits(model, packed, keep) / temperatures.unsqueeze(1)).log_softmax(-1)
    chosen = logprobs.gather(1, targets.unsqueeze(1)).squeeze(1)
    weighted(chosen).backward()
    assert torch.allclose(scores.logprobs_K, chosen, atol=1e-12)
    assert torch.allclose(scores.entropy_K, -(logprobs.exp() * logprobs).sum(-1), atol=1e-12)
    # The norms of these models compute in fp32 even here.
    assert all(torch.allclose(got[name], p.grad, atol=1e-6) for name, p in model.named_parameters())
    assert (linear_head(model) is None) == (cap is not None)


def weighted(logprobs_K):
    """A loss with another weight for each token."""
    return (logprobs_K * torch.linspace(-1, 2, len(logprobs_K), dtype=torch.float64)).sum()


@pytest.mark.parametrize("decoded", [1, 3, 1000])
def test_the_sampler_path_scores_like_the_learner(loaded, decoded):
    """Prefill, continuation and decoding of any number of tokens with a cache give the learner's log probabilities."""
    rows = make_batch(random_groups(loaded), resolve(TrainingConfig())).rows
    batch = make_micro_batch(rows, {}, loaded.device)
    with torch.no_grad():
        scores = token_scores(loaded.model, batch.packed, batch.keep_K, batch.targets_K).logprobs_K
    served = served_logprobs(loaded, rows, decoded)
    assert torch.allclose(scores, torch.cat([served[row.index] for row in rows]), atol=1e-5)


def test_what_rows_of_a_group_have_in_common_is_computed_once(loaded, monkeypatch):
    """Six answers to a prompt of 40 tokens cost the sampler's path one prompt, and give the learner's values."""
    prompt = list(range(5, 45))
    rows = [Row(n, 0, n, [*prompt, 50 + n, 60], [39, 40, 41], [50 + n, 60, 1], [0.0] * 3, [0.0] * 3) for n in range(6)]
    seen, logits = [], LoadedModel.sampler_logits

    def counted(self, batch, keep_K):
        seen.append(len(batch.token_ids_T))
        return logits(self, batch, keep_K)

    monkeypatch.setattr(LoadedModel, "sampler_logits", counted)
    served = served_logprobs(loaded, rows)
    assert sum(seen) == 39 + 6 * 3
    batch = make_micro_batch(rows, {}, loaded.device)
    with torch.no_grad():
        scores = token_scores(loaded.model, batch.packed, batch.keep_K, batch.targets_K).logprobs_K
    assert torch.allclose(scores, torch.cat([served[row.index] for row in rows]), atol=1e-5)

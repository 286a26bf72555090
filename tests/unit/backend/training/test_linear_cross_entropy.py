"""Log probabilities from hidden states, block by block, against the formula on all logits in fp64."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from nat.backend.training.linear_cross_entropy import linear_scores

K, H, V = 37, 16, 211


def made(*, bias, frozen, dtype=torch.float64):
    """Hidden states, a head with peaked outputs, targets, and the gradient that arrives at the log probabilities."""
    torch.manual_seed(0)
    head = nn.Linear(H, V, bias=bias, dtype=torch.float64).to(dtype).requires_grad_(not frozen)
    with torch.no_grad():
        head.weight.mul_(8)
    hidden = torch.randn(K, H, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, head, torch.randint(V, (K,)), torch.randn(K, dtype=torch.float64)


def gradients(logprobs_K, weights_K, hidden, head):
    trained = [hidden, *(p for p in head.parameters() if p.requires_grad)]
    return torch.autograd.grad((logprobs_K * weights_K.to(logprobs_K.dtype)).sum(), trained)


def direct(hidden, head, targets, temperatures):
    """Log probabilities and entropies from all logits."""
    logits = head(hidden) if temperatures is None else head(hidden) / temperatures.unsqueeze(1)
    logprobs = logits.log_softmax(-1)
    return logprobs.gather(1, targets.unsqueeze(1)).squeeze(1), -(logprobs.exp() * logprobs).sum(-1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("temperatures", [None, torch.linspace(0.3, 2, K, dtype=torch.float64)], ids=["1", "own"])
@pytest.mark.parametrize("max_logits", [K * V, K * 100, K * 7, 1])
def test_scores_and_gradients_equal_the_formula(bias, frozen, temperatures, max_logits):
    """One block, blocks that do not divide the vocabulary, and blocks of one token agree with it to 1e-10."""
    hidden, head, targets, weights = made(bias=bias, frozen=frozen)
    scores = linear_scores(hidden, head, targets, temperatures, max_logits=max_logits)
    logprobs, entropy = direct(hidden, head, targets, temperatures)
    assert torch.allclose(scores.logprobs_K, logprobs, atol=1e-10)
    assert torch.allclose(scores.entropy_K, entropy, atol=1e-10)
    got, wanted = (gradients(each, weights, hidden, head) for each in (scores.logprobs_K, logprobs))
    assert all(torch.allclose(one, other, atol=1e-10) for one, other in zip(got, wanted, strict=True))
    assert not scores.entropy_K.requires_grad


@pytest.mark.parametrize("frozen", [False, True])
def test_bfloat16_sums_in_fp32(frozen):
    """Only the products round: scores are fp32, gradients have the weights' dtype and differ by rounding alone."""
    hidden, head, targets, weights = made(bias=False, frozen=frozen, dtype=torch.bfloat16)
    scores = linear_scores(hidden, head, targets, None, max_logits=K * 50)
    exact = hidden.detach().double().requires_grad_()
    logprobs, entropy = direct(exact, deepcopy(head).double(), targets, None)
    assert scores.logprobs_K.dtype == scores.entropy_K.dtype == torch.float32
    assert torch.allclose(scores.logprobs_K.double(), logprobs, atol=0.2)
    assert torch.allclose(scores.entropy_K.double(), entropy, atol=0.2)
    wanted = torch.autograd.grad((logprobs * weights).sum(), exact)[0]
    hidden_gradient = torch.autograd.grad((scores.logprobs_K * weights.float()).sum(), hidden)[0]
    assert hidden_gradient.dtype == torch.bfloat16
    assert float((hidden_gradient.double() - wanted).norm() / wanted.norm()) < 0.02

"""The loss kernel by hand, and its gradients."""

import math

import pytest
import torch

from nat.backend.training.loss import (
    bounded_ratios,
    clipped,
    kl_penalty,
    kl_term,
    log_ratios,
    policy_term,
    rollout_weights,
    sampler_weights,
)

CLIP = {"low": 0.2, "high": 0.28}


def tensor(*values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def test_clip_golden_case():
    """min(rA, clip(r)A): a ratio of 2 counts as 1.28 for A > 0 and as 2 for A < 0; one of 1/2 as 1/2 and 0.8."""
    ratios = tensor(2.0, 2.0, 0.5, 0.5)
    objective = policy_term(ratios, tensor(0, 0, 0, 0), tensor(1, -1, 1, -1), "clip", **CLIP)
    assert objective.tolist() == pytest.approx([1.28, -2.0, 0.5, -0.8])


def test_clip_stops_the_gradient_outside():
    """A token beyond the range in the direction of its advantage has no gradient; the others have rA."""
    log_ratio = tensor(math.log(2), math.log(2), 0.0, grad=True)
    policy_term(log_ratio.exp(), log_ratio, tensor(1, -1, 3), "clip", **CLIP).sum().backward()
    assert log_ratio.grad.tolist() == pytest.approx([0.0, -2.0, 3.0])


def test_cispo_keeps_every_gradient():
    """The gradient is sg(min(r, 1 + high)) · A at every token."""
    logprobs = tensor(-1.0, -1.0, -1.0, grad=True)
    log_ratio = logprobs - tensor(-1 - math.log(2), -1 - math.log(0.5), -1.0)
    policy_term(log_ratio.exp(), logprobs, tensor(1, 1, -2), "cispo", **CLIP).sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([1.28, 0.5, -2.0])


def test_sequence_ratio_is_the_mean_of_the_row():
    """At sequence level all tokens of a row share exp(mean log ratio); rows do not mix."""
    logprobs, old, row = tensor(-1.0, -2.0, -3.0), tensor(-2.0, -2.0, -1.0), torch.tensor([0, 0, 1])
    assert log_ratios(logprobs, old, row, 2, "sequence").tolist() == pytest.approx([0.5, 0.5, -2.0])
    assert log_ratios(logprobs, old, row, 2, "token").tolist() == pytest.approx([1.0, 0.0, -2.0])


def test_averaged_ratios():
    """Ratios of 4 and 1 have the row's 2: averages of 3 and 3/2, geometric ones of √8 and √2."""
    logprobs, old, row = tensor(math.log(4), 0.0), tensor(0.0, 0.0), torch.tensor([0, 0])
    average = log_ratios(logprobs, old, row, 1, "average").exp()
    assert average.tolist() == pytest.approx([3.0, 1.5])
    geometric = log_ratios(logprobs, old, row, 1, "geometric_average").exp()
    assert geometric.tolist() == pytest.approx([8**0.5, 2**0.5])


def test_two_sided_cispo_holds_the_weight_in_the_range():
    """The weight is clip(r, 0.8, 1.28) at every token, whatever the sign of its advantage."""
    logprobs = tensor(-1.0, -1.0, -1.0, grad=True)
    policy_term(tensor(2.0, 0.5, 1.0), logprobs, tensor(1, 1, -2), "cispo_two_sided", **CLIP).sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([1.28, 0.8, -2.0])


@pytest.mark.parametrize("kind", ["clip", "cispo", "cispo_two_sided"])
def test_masked_tokens_are_out_of_the_objective(kind):
    """Outside of the range neither value nor gradient is left, with any policy loss; `clipped` counts them."""
    advantages, log_ratio = tensor(1, -1, -2), tensor(math.log(2), math.log(0.5), 0.0, grad=True)
    ratio = bounded_ratios(log_ratio, advantages, negative_cap=None, mask=True, **CLIP)
    objective = policy_term(ratio, log_ratio - 1, advantages, kind, **CLIP)
    objective.sum().backward()
    assert objective[:2].tolist() == log_ratio.grad[:2].tolist() == [0.0, 0.0]
    assert log_ratio.grad[2] == pytest.approx(-2.0)
    low, high = clipped(log_ratio.exp(), advantages, kind, mask=True, **CLIP)
    assert (low.tolist(), high.tolist()) == ([False, True, False], [True, False, False])


def test_the_negative_cap_leaves_positive_advantages_alone():
    """A ratio of 2 counts as 1.5 where the advantage is negative, one of 1 as itself; none is no negative one."""
    log_ratio, advantages = tensor(2.0, 2.0, 1.0, 2.0, 2.0).log(), tensor(1, -1, -1, 0, 0.5)
    ratio = bounded_ratios(log_ratio, advantages, negative_cap=1.5, mask=False, **CLIP)
    assert ratio.tolist() == pytest.approx([2.0, 1.5, 1.0, 2.0, 2.0])


def test_the_ends_of_the_range_are_masked_and_not_clipped():
    """As ART masks: a ratio stays that is strictly inside. What equals a bound has not been moved to it."""
    ends = [{"low": 0.0, "high": 0.5}, {"low": 0.5, "high": 0.0}]
    for bounds in ends:
        masked = bounded_ratios(tensor(0.0), tensor(1), negative_cap=None, mask=True, **bounds)
        assert masked.tolist() == [0.0]
        touched = clipped(tensor(1.0), tensor(1), "cispo_two_sided", mask=False, **bounds)
        assert [end.tolist() for end in touched] == [[False], [False]]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("clip", [False, True, False, False], [True, False, False, False]),
        ("cispo", [False, False, False, False], [True, False, True, False]),
        ("cispo_two_sided", [False, True, False, True], [True, False, True, False]),
    ],
)
def test_what_counts_as_clipped(kind, low, high):
    """clip: only where the gradient is lost; cispo: only the cap; two-sided: both ends, whatever the advantage."""
    found = clipped(tensor(2.0, 0.5, 2.0, 0.5), tensor(1, -1, -1, 1), kind, mask=False, **CLIP)
    assert [end.tolist() for end in found] == [low, high]


def test_a_token_without_advantage_loses_no_gradient_to_the_clip():
    """It has none to lose; one with a small positive advantage loses none at the low end."""
    low, high = clipped(tensor(0.5, 2.0, 0.5), tensor(0, 0, 0.5), "clip", mask=False, **CLIP)
    assert low.tolist() == high.tolist() == [False, False, False]


def test_the_kl_penalty_moves_advantages_and_creates_none():
    """Distances of 0.1 and 0.5 to the reference: the nearer token gains 0.2, the farther one loses it."""
    penalty = kl_penalty(tensor(-1.0, -1.0), tensor(-1.1, -1.5))
    assert penalty.tolist() == pytest.approx([0.2, -0.2])


@pytest.mark.parametrize("level", ["token", "sequence", "average", "geometric_average"])
def test_absurd_ratios_stay_finite(level):
    """A log ratio of 1000 is clamped to 20 before exp."""
    log_ratio = log_ratios(tensor(-1.0), tensor(-1001.0), torch.tensor([0]), 1, level)
    assert log_ratio.tolist() == [20.0]


def test_kl_has_the_gradient_of_the_kl():
    """On policy the gradient of r · k3 is d · ∇log π, summed over what the policy samples: that of KL(π‖π_ref)."""
    logits, reference = tensor(0.3, -1.0, 2.0, grad=True), tensor(1.0, 0.5, 0.0).log_softmax(0)
    logprobs = logits.log_softmax(0)
    kl = (logprobs.exp() * (logprobs - reference)).sum()
    (expected,) = torch.autograd.grad(kl, logits, retain_graph=True)
    probabilities = logprobs.exp().detach()
    estimate = (probabilities * kl_term(logprobs, reference, logprobs.detach())).sum()
    (gradient,) = torch.autograd.grad(estimate, logits)
    assert torch.allclose(gradient, expected)
    assert estimate.item() == pytest.approx(kl.item())


def test_truncated_importance_sampling():
    """min(π_old/μ, cap); None switches the correction off."""
    old, sampler = tensor(-1.0, -1.0), tensor(-1 - math.log(4), -1 + math.log(2))
    assert sampler_weights(old, sampler, 2.0).tolist() == pytest.approx([2.0, 0.5])
    assert sampler_weights(old, sampler, None).tolist() == [1.0, 1.0]


def test_aggregation_golden_cases():
    """Rollouts of 1 and 3 tokens: 1/4 each; 1/2 and 1/6; 1/(2 · 10) each."""
    tokens = torch.tensor([1, 3])
    weights = {
        kind: rollout_weights(tokens, kind, max_completion_length=10).tolist()
        for kind in ("token_mean", "seq_mean", "constant")
    }
    assert weights["token_mean"] == pytest.approx([1 / 4, 1 / 4])
    assert weights["seq_mean"] == pytest.approx([1 / 2, 1 / 6])
    assert weights["constant"] == pytest.approx([1 / 20, 1 / 20])

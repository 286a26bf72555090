"""The loss and its gradients, computed by hand."""

import math
from dataclasses import replace

import pytest
import torch

from nat.backend.algorithms.algorithm import AlgorithmOptions, PolicyTokens, clamped
from nat.backend.algorithms.registry import AGGREGATIONS, POLICY_LOSSES, RATIO_LEVELS, resolve
from nat.backend.training.batch import Row
from nat.backend.training.linear_cross_entropy import TokenScores
from nat.backend.training.loss import (
    Anchors,
    AnchorTable,
    kl_penalty,
    kl_term,
    micro_batch_loss,
    sampler_weights,
)
from nat.backend.training.micro_batch import make_micro_batch
from nat.wire.training import TrainingConfig


def tensor(*values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def term(kind, log_ratio, advantages, *, logprobs=None, low=0.2, high=0.28):
    """The policy term at tokens of one row."""
    tokens = PolicyTokens(
        logprobs_K=log_ratio if logprobs is None else logprobs,
        old_logprobs_K=torch.zeros_like(log_ratio),
        log_ratio_K=log_ratio,
        advantages_K=advantages,
        row_K=torch.zeros(len(log_ratio), dtype=torch.long),
        num_rows=1,
        epsilon=low,
        epsilon_high=high,
        options=AlgorithmOptions(),
    )
    return POLICY_LOSSES[kind](tokens)


def log_ratios(logprobs, old, row, num_rows, level):
    return clamped(RATIO_LEVELS[level](logprobs - old, row, num_rows))


def test_clip_golden_case():
    """The term is min(rA, clip(r)A): a ratio of 2 counts as 1.28 if A > 0, as 2 if A < 0; one of 1/2 as 1/2 and 0.8."""
    objective = term("clip", tensor(2.0, 2.0, 0.5, 0.5).log(), tensor(1, -1, 1, -1)).objective_K
    assert objective.tolist() == pytest.approx([1.28, -2.0, 0.5, -0.8])


def test_clip_stops_the_gradient_outside():
    """A token beyond the clip range in the direction of its advantage has no gradient; the others have rA."""
    log_ratio = tensor(math.log(2), math.log(2), 0.0, grad=True)
    term("clip", log_ratio, tensor(1, -1, 3)).objective_K.sum().backward()
    assert log_ratio.grad.tolist() == pytest.approx([0.0, -2.0, 3.0])


def test_cispo_keeps_every_gradient():
    """The gradient is sg(min(r, 1 + high)) · A at every token."""
    logprobs = tensor(-1.0, -1.0, -1.0, grad=True)
    log_ratio = logprobs - tensor(-1 - math.log(2), -1 - math.log(0.5), -1.0)
    term("cispo", log_ratio, tensor(1, 1, -2), logprobs=logprobs).objective_K.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([1.28, 0.5, -2.0])


def test_sequence_ratio_is_the_mean_of_the_row():
    """At sequence level all tokens of a row share exp(mean log ratio); rows are separate."""
    logprobs, old, row = tensor(-1.0, -2.0, -3.0), tensor(-2.0, -2.0, -1.0), torch.tensor([0, 0, 1])
    assert log_ratios(logprobs, old, row, 2, "sequence").tolist() == pytest.approx([0.5, 0.5, -2.0])
    assert log_ratios(logprobs, old, row, 2, "token").tolist() == pytest.approx([1.0, 0.0, -2.0])


def test_the_kl_penalty_moves_advantages_and_creates_none():
    """With distances of 0.1 and 0.5 to the reference, the nearer token gains 0.2 and the farther one loses 0.2."""
    penalty = kl_penalty(tensor(-1.0, -1.0), tensor(-1.1, -1.5))
    assert penalty.tolist() == pytest.approx([0.2, -0.2])


@pytest.mark.parametrize(("source", "penalty"), [("learner", [0.2, -0.2]), ("sampler", [0.3, -0.3])])
def test_the_kl_penalty_may_be_that_of_the_sampler(source, penalty):
    """With its log probability of -1.2 the first token is nearer; a token of a text has the learner's."""
    row = Row(0, 0, 0, [1, 2, 3], [0, 1], [2, 3], [-1.2, None], [1.0, 1.0])
    anchors = AnchorTable(start={0: tensor(-1.0, -1.0)}, reference={0: tensor(-1.1, -1.5)})
    anchors.penalise([row], TrainingConfig(kl_penalty_coef=1.0, kl_penalty_source=source))
    assert anchors.penalty[0].tolist() == pytest.approx(penalty)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_absurd_ratios_stay_finite(level):
    """A log ratio of 1000 is clamped to 20 before exp."""
    log_ratio = log_ratios(tensor(-1.0), tensor(-1001.0), torch.tensor([0]), 1, level)
    assert log_ratio.tolist() == [20.0]


def test_kl_has_the_gradient_of_the_kl():
    """On policy, the gradient of r · k3 is d · ∇log π; its expectation is the gradient of KL(π‖π_ref)."""
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
    """The weight is min(π_old/μ, cap); None switches the correction off."""
    old, sampler = tensor(-1.0, -1.0), tensor(-1 - math.log(4), -1 + math.log(2))
    assert sampler_weights(old, sampler, 2.0).tolist() == pytest.approx([2.0, 0.5])
    assert sampler_weights(old, sampler, None).tolist() == [1.0, 1.0]


def test_aggregation_golden_cases():
    """Rollouts of 1 and 3 tokens weigh 1/4 per token, or 1/2 and 1/6, or 1/(2 · 10)."""
    weights = {kind: aggregation(tensor(1, 3), 10).tolist() for kind, aggregation in AGGREGATIONS.items()}
    assert weights["token_mean"] == pytest.approx([1 / 4, 1 / 4])
    assert weights["seq_mean"] == pytest.approx([1 / 2, 1 / 6])
    assert weights["constant"] == pytest.approx([1 / 20, 1 / 20])


def row(index, num_tokens):
    return Row(
        index,
        0,
        index,
        [0] * num_tokens,
        list(range(num_tokens)),
        [0] * num_tokens,
        [-1.0] * num_tokens,
        [0.0] * num_tokens,
        1.0,
    )


def test_the_loss_of_a_micro_batch_adds_beta_times_the_kl():
    """Two tokens of weight 1/2 and zero advantage leave β · mean(r · k3); without a reference or β, nothing."""
    batch = make_micro_batch([row(0, 2)], {0: 0.5}, torch.device("cpu"))
    new, start, reference = tensor(-0.9, -1.2), tensor(-1.0, -1.0), tensor(-1.5, -0.8)

    def total(beta, reference_K):
        anchors = Anchors(start, reference_K, None)
        loss, _ = micro_batch_loss(TokenScores(new, torch.zeros(2)), batch, anchors, resolve(TrainingConfig(beta=beta)))
        return loss.item()

    ratios, distances = [math.exp(0.1), math.exp(-0.2)], [0.6, -0.4]
    k3 = [math.exp(-d) - 1 + d for d in distances]
    assert total(0.3, reference) == pytest.approx(0.3 * (ratios[0] * k3[0] + ratios[1] * k3[1]) / 2)
    assert total(0.3, None) == total(0.0, reference) == 0.0


def test_a_teacher_gives_each_token_the_bounded_log_ratio_as_its_advantage():
    """It is log π_T - log π where the teacher gave one, at most 5, and 0 where it gave none."""
    taught = replace(row(0, 3), teacher_logprobs=[-0.4, None, -9.0])
    batch = make_micro_batch([taught], {0: 1 / 3}, torch.device("cpu"))
    scores = TokenScores(tensor(-1.0, -2.0, -1.0), torch.zeros(3))
    anchors = Anchors(scores.logprobs_K, None, None)
    _, values = micro_batch_loss(scores, batch, anchors, resolve(TrainingConfig(algorithm="distill")))
    assert values.advantages_K.tolist() == pytest.approx([0.6, 0.0, -5.0])

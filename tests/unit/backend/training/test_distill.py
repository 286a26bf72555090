"""Distillation: the gradient, the estimate of the divergence, and which rollouts teach."""

from random import Random

import pytest
import torch
from update_metrics import UPDATE

from fakes.gradients import trained
from fakes.training_batches import random_groups, random_row
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.training.batch import make_batch
from nat.errors import UpdateRejected
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingRow


def taught(row: TrainingRow, logprobs) -> TrainingRow:
    """The row with a teacher's log probabilities of its sampled tokens, given for all tokens."""
    given = [None if value is None else float(value) for value in logprobs]
    spans = [span.model_copy(update={"teacher_logprobs": given[span.start : span.stop]}) for span in row.spans]
    return row.model_copy(update={"spans": spans})


def of_teacher(row: TrainingRow) -> list[float | None]:
    """The teacher's log probability of each token of the row."""
    found: list[float | None] = [None] * len(row.token_ids)
    for span in row.spans:
        found[span.start : span.stop] = span.teacher_logprobs
    return found


def invented(groups, seed=0):
    """The groups with a teacher's log probabilities that nobody computed."""
    random = Random(seed)
    return [
        TrainingGroup(
            id=group.id,
            rollouts=[
                r.model_copy(
                    update={"rows": [taught(row, [-8 * random.random() for _ in row.token_ids]) for row in r.rows]}
                )
                for r in group.rollouts
            ],
        )
        for group in groups
    ]


def gradient_of(learner, groups, **config):
    """The gradient and the metrics of one pass of distillation."""
    return trained(learner, groups, algorithm="distill", num_iterations=1, **config)


def reference_gradient(loaded, groups, most):
    """The gradient of -1/K Σ A log π with A = log π_T - log π, in plain torch, and the mean of -A without a bound."""
    total, gaps, count = torch.zeros(()), [], 0
    for row in (row for group in groups for rollout in group.rollouts for row in rollout.rows):
        logprobs = packed_logits(loaded.model, PackedRows.of([row.token_ids])).log_softmax(-1)
        for at in row.targets:
            own = logprobs[at - 1, row.token_ids[at]]
            gap = of_teacher(row)[at] - own.detach()
            gaps.append(float(-gap))
            total = total - gap.clamp(-most, most) * own
            count += 1
    loaded.model.zero_grad()
    (total / count).backward()
    found = {name: p.grad.clone() for name, p in loaded.trainable_parameters().items()}
    loaded.model.zero_grad()
    return found, sum(gaps) / count


@pytest.mark.parametrize("most", [5.0, 1.0])
@pytest.mark.parametrize("micro_batch_tokens", [1, 4096])
def test_the_gradient_is_that_of_plain_torch(loaded64, make_learner, most, micro_batch_tokens):
    """It is -1/K Σ clamp(log π_T - log π) ∇log π for any micro-batches, and `teacher_kl` is the mean of log π/π_T."""
    groups = invented(random_groups(loaded64, groups=3, rollouts=2, rows=2))
    expected, divergence = reference_gradient(loaded64, groups, most)
    found, metrics = gradient_of(
        make_learner(loaded64), groups, options={"max_log_ratio": most}, micro_batch_tokens=micro_batch_tokens
    )
    assert metrics["teacher_kl"] == pytest.approx(divergence, abs=1e-5)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name].double(), gradient.double(), atol=1e-6, rtol=1e-4)
    assert metrics.keys() <= UPDATE.keys() | {"teacher_kl"}


def test_batches_without_a_teacher_are_refused(loaded):
    """Distillation without a teacher's log probabilities, and these without distillation, are errors."""
    plain = random_groups(loaded)
    with pytest.raises(
        UpdateRejected, match=r"rollout 0 .* spans with no teacher_logprobs, which 'distill' learns from"
    ):
        make_batch(plain, resolve(TrainingConfig(algorithm="distill")))
    with pytest.raises(UpdateRejected, match="which only distill uses; it is to be trained by 'grpo'"):
        make_batch(invented(plain), resolve(TrainingConfig(algorithm="grpo")))
    row = random_row(loaded, Random(0), 8)
    with pytest.raises(ValueError, match=r"2 teacher_logprobs for the 1 tokens of a span"):
        Span(**row.spans[0].model_dump() | {"teacher_logprobs": [None, -1.0]})

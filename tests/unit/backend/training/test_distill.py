"""Distillation: the gradient, the estimate of the divergence, and which rollouts teach."""

import math
from random import Random

import pytest
import torch

from fakes.gradients import trained
from fakes.training_batches import random_groups, random_row
from fakes.training_rows import answer_row
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.errors import UpdateRejected
from nat.wire.metrics import UPDATE
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow


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


def sharper(loaded, factor):
    """Another model with the same tokens."""
    teacher = load_model(loaded.path, device="cpu")
    with torch.no_grad():
        for parameter in teacher.model.parameters():
            parameter.mul_(factor)
    return teacher


@torch.no_grad()
def whole_divergence(student, teacher, prompts):
    """KL(student ‖ teacher) over the whole vocabulary after each prompt, and their mean."""
    mine, its = (
        torch.stack([packed_logits(m.model, PackedRows.of([p]))[-1].log_softmax(-1) for p in prompts])
        for m in (student, teacher)
    )
    return (mine.exp() * (mine - its)).sum(-1), mine, its


def answers(prompts, drawn, mine, its):
    """A group of one rollout for each drawn token, which has both models' log probabilities."""
    return [
        TrainingGroup(
            id=f"{number}-{place}",
            rollouts=[
                TrainingRollout(
                    reward=0,
                    rows=[
                        taught(
                            answer_row(prompt, [token], [float(mine[number, token])]),
                            [None] * len(prompt) + [its[number, token]],
                        )
                    ],
                )
            ],
        )
        for number, prompt in enumerate(prompts)
        for place, token in enumerate(drawn[number].tolist())
    ]


def test_the_estimate_is_that_of_the_whole_vocabulary(loaded, make_learner):
    """Over many sampled tokens, `teacher_kl` is the reverse KL divergence within four standard errors."""
    teacher = sharper(loaded, 1.3)
    random = Random(1)
    prompts = [[random.randrange(250) for _ in range(12)] for _ in range(4)]
    exact, mine, its = whole_divergence(loaded, teacher, prompts)
    torch.manual_seed(0)
    drawn = torch.multinomial(mine.exp(), 500, replacement=True)
    gaps = (mine - its).gather(1, drawn)
    groups = answers(prompts, drawn, mine, its)
    _, metrics = gradient_of(make_learner(loaded), groups)
    error = 4 * float(gaps.std()) / math.sqrt(gaps.numel())
    assert float(exact.mean()) > 10 * error / 4, "a divergence that the estimate can miss shows nothing"
    assert metrics["teacher_kl"] == pytest.approx(float(exact.mean()), abs=error)


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


def test_the_student_becomes_the_teacher(loaded, make_learner):
    """On answers that the student samples, the divergence to the teacher falls to less than a third."""
    student, teacher = load_model(loaded.path, device="cpu"), sharper(loaded, 1.3)
    learner, resolved = (
        make_learner(student),
        resolve(TrainingConfig(algorithm="distill", warmup_steps=0, num_iterations=1, learning_rate=3e-4)),
    )
    random, divergences = Random(0), []
    prompts = [[random.randrange(250) for _ in range(6)] for _ in range(4)]
    for seed in range(30):
        exact, mine, its = whole_divergence(student, teacher, prompts)
        divergences.append(float(exact.mean()))
        torch.manual_seed(seed)
        drawn = torch.multinomial(mine.exp(), 64, replacement=True)
        groups = answers(prompts, drawn, mine, its)
        learner.update(groups, resolved)
    assert divergences[-1] < divergences[0] / 3

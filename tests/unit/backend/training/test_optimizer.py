"""AdamW with fp32 masters for weights of lower precision, and the learning rate over a run."""

import pytest
import torch
from torch import nn

from nat.backend.training.optimizer import DECAYED, MasterAdamW, learning_rate_at
from nat.wire.training import TrainingConfig


def parameter(dtype):
    return nn.Parameter(torch.linspace(-1, 1, 8).to(torch.bfloat16).to(dtype))


def stepped(weight, steps, rate):
    optimizer = MasterAdamW({"w": weight})
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(3):  # three micro-batches
            (weight.float() * 0.5).sum().backward()
        optimizer.step(rate)
    return optimizer


def test_small_steps_add_up_in_bf16():
    """Steps too small for bf16 accumulate: after many of them the served weight equals that in fp32."""
    low, full = parameter(torch.bfloat16), parameter(torch.float32)
    stepped(low, 100, 1e-4)
    stepped(full, 100, 1e-4)
    assert torch.equal(low.detach(), full.detach().to(torch.bfloat16))
    assert not torch.equal(low.detach(), parameter(torch.bfloat16).detach())


def test_gradients_of_micro_batches_are_summed_in_fp32():
    """The parameter keeps no bf16 gradient; the master has the sum."""
    weight = parameter(torch.bfloat16)
    optimizer = MasterAdamW({"w": weight})
    for _ in range(300):
        (weight * 1.0).sum().backward()
    assert weight.grad is None
    assert optimizer.clip(1e9) == torch.full((8,), 300.0).norm()


def test_snapshot_and_restore():
    """Weights, masters and moments are restored bit by bit."""
    weight = parameter(torch.bfloat16)
    optimizer = stepped(weight, 3, 1e-3)
    snapshot = optimizer.snapshot()
    optimizer.step(0.1)
    optimizer.restore(snapshot)
    assert torch.equal(weight.detach(), snapshot.weights["w"])
    assert all(torch.equal(tensor, snapshot.state[name]) for name, tensor in optimizer.state().items())
    assert set(snapshot.state) == {"step.w", "exp_avg.w", "exp_avg_sq.w", "master.w"}


def rates(steps, **config):
    return [learning_rate_at(TrainingConfig(learning_rate=1.0, **config), step) for step in steps]


def test_without_a_schedule_the_learning_rate_is_constant():
    """The learning rate is the configured one from the first step on."""
    assert rates([0, 1, 1000]) == [1.0, 1.0, 1.0]


def test_the_learning_rate_rises_over_the_warmup():
    """The first warm-up step has a learning rate above zero."""
    assert rates(range(5), warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_the_learning_rate_falls_over_the_decay_and_stays():
    """The learning rate never falls to zero, so a longer run still learns."""
    assert rates([0, 5, 10, 11, 1000], decay_steps=10) == pytest.approx([1.0, 0.55, DECAYED, DECAYED, DECAYED])


def test_warmup_and_decay_count_from_the_first_step():
    """Warm-up and decay both count from the first step, so they are independent."""
    assert rates([0, 1, 2], warmup_steps=2, decay_steps=10) == pytest.approx([0.5, 0.91, 0.82])

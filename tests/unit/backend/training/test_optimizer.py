"""AdamW with fp32 masters for weights of lower precision, and the learning rate over a run."""

import pytest
import torch
from torch import nn

from nat.backend.training.optimizer import MasterAdamW, learning_rate_at, usual_learning_rate
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
    """Steps too small for bf16 accumulate: after many of them the served weight is fp32's, rounded up or down."""
    low, full = parameter(torch.bfloat16), parameter(torch.float32)
    stepped(low, 100, 1e-4)
    stepped(full, 100, 1e-4)
    distance = (low.detach().float() - full.detach()).abs()
    assert (distance <= full.detach().abs() * 2**-7).all()
    assert not torch.equal(low.detach(), parameter(torch.bfloat16).detach())


@pytest.mark.parametrize("rate", [3e-6, 3e-5, 1e-3])
def test_a_step_below_bf16_shows_in_as_many_weights(rate):
    """A step moves the mean of many bf16 weights as far as in fp32, in each row and column; nothing moves without."""
    begun = torch.full((512, 576), 0.02).to(torch.bfloat16)
    weight = nn.Parameter(begun.clone())
    optimizer = MasterAdamW({"w": weight})
    optimizer.load(optimizer.state())
    assert torch.equal(weight.detach(), begun)
    weight.float().sum().backward()
    optimizer.step(rate)
    moved = weight.detach().float() - begun.float()
    for mean in (moved.mean(), *moved.mean(0), *moved.mean(1)):
        assert float(mean) == pytest.approx(-rate, rel=0.15, abs=2e-6)


class Failed(Exception):
    pass


def copied(optimizer, weight):
    return {"weight": weight.detach().clone(), **{name: t.clone() for name, t in optimizer.state().items()}}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def step_and_fail(optimizer, weight, seen=lambda: None):
    """Two steps that must leave no trace; `seen` is called after them."""
    with optimizer.all_or_nothing():
        for _ in range(2):
            weight.float().square().sum().backward()
            optimizer.step(0.1)
        seen()
        raise Failed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_failed_block_leaves_no_trace(dtype, steps_before):
    """Weights, masters and moments are as before two steps, bit by bit; also where there were no moments yet."""
    weight = parameter(dtype)
    optimizer = stepped(weight, steps_before, 1e-3)
    before = copied(optimizer, weight)
    after = []
    with pytest.raises(Failed):
        step_and_fail(optimizer, weight, seen=lambda: after.append(copied(optimizer, weight)))
    assert not same(after[0], before)
    assert same(copied(optimizer, weight), before)
    assert optimizer.clip(1.0) == 0


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_torch(weight_decay):
    """Parameter by parameter, the weights are those of torch's optimizer over all of them, bit by bit."""
    config = TrainingConfig(weight_decay=weight_decay)
    ours, theirs = ({name: parameter(torch.float32) for name in "ab"} for _ in range(2))
    optimizer = MasterAdamW(ours)
    optimizer.configure(config)
    betas = (config.adam_beta1, config.adam_beta2)
    peer = torch.optim.AdamW(theirs.values(), 1e-2, betas, config.adam_epsilon, weight_decay, fused=True)
    for number in range(5):
        for weights in (ours, theirs):
            loss = sum((weight * (number + scale)).sin().sum() for scale, weight in enumerate(weights.values()))
            loss.backward()
        optimizer.step(1e-2)
        peer.step()
        optimizer.zero_grad()
        peer.zero_grad()
    assert all(torch.equal(ours[name].detach(), theirs[name].detach()) for name in ours)


def rates(steps, **config):
    return [learning_rate_at(TrainingConfig(**{"learning_rate": 1.0, "warmup_steps": 0} | config), s) for s in steps]


def test_the_learning_rate_rises_over_the_warmup():
    """The first warm-up step has a learning rate above zero."""
    assert rates(range(5), warmup_steps=4) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_warmup_and_decay_count_from_the_first_step():
    """Warm-up and decay both count from the first step, so they are independent."""
    assert rates([0, 1, 2], warmup_steps=2, decay_steps=10) == pytest.approx([0.5, 0.91, 0.82])


@pytest.mark.parametrize(
    ("width", "full", "lora"), [(64, 1.02e-3, 2.5e-3), (576, 2.63e-5, 2.78e-4), (4096, 1e-6, 3.9e-5)]
)
def test_wider_models_get_smaller_learning_rates(width, full, lora):
    """The rates of the docstring: 1e-6 for all weights at a width of 4096, 8e-5 for adapters at 2048."""
    assert usual_learning_rate(width, lora=False) == pytest.approx(full, rel=0.01)
    assert usual_learning_rate(width, lora=True) == pytest.approx(lora, rel=0.01)

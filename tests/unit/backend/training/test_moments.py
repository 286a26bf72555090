"""AdamW's moments in eight bits: their rounding, their size, and a training with them."""

import pytest
import torch
from torch import nn

from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.model_loader import load_model
from nat.backend.training.batch import make_batch
from nat.backend.training.mismatch import served_logprobs
from nat.backend.training.moments import Moments
from nat.backend.training.optimizer import MasterAdamW
from nat.wire.training import TrainingConfig

STEP = 2 ** (1 / 8)


def moments(average, square, step=1):
    return Moments(torch.tensor(float(step)), average, square)


def rounded(average, square, step=1):
    return Moments.load(moments(average, square, step).pack8(), average)


def test_values_are_rounded_by_at_most_a_step():
    """Over four orders of magnitude and blocks of different sizes, each value keeps its sign and 9 % of accuracy."""
    torch.manual_seed(0)
    average = torch.randn(7, 100) * torch.logspace(-4, 0, 7).unsqueeze(1)
    average[average.abs() < average.abs().amax() * 1e-4] = 0
    found = rounded(average, average.square())
    for got, exact in ((found.average, average), (found.square, average.square())):
        ratio = (got / exact)[exact != 0]
        assert float(ratio.min()) > 1 / STEP - 1e-5
        assert float(ratio.max()) < STEP + 1e-5
        assert bool((got[exact == 0] == 0).all())


def test_packing_in_parts_gives_the_same_bits(monkeypatch):
    """So what it takes besides does not grow with the parameter; blocks at a part's edge are whole."""
    torch.manual_seed(0)
    average = torch.randn(128 * 7 + 5)
    whole = moments(average, average.square()).pack8()
    monkeypatch.setattr("nat.backend.training.moments._PART", 2)
    parts = moments(average, average.square()).pack8()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert torch.equal(Moments.load(parts, average).square, Moments.load(whole, average).square)


def test_the_smallest_squares_stay_above_zero():
    """AdamW divides by their root; a mean far below the others of its block is zero."""
    average = torch.tensor([1.0, 1e-6, -1e-6, 0.0])
    found = rounded(average, torch.tensor([1.0, 1e-14, 1e-20, 0.0]))
    assert found.average.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert bool((found.square[:3] > 0).all())
    assert found.square[3] == 0


def test_small_changes_add_up():
    """A mean square that shrinks by a hundredth at a time does so on average, though a step is nine times as much."""
    square = torch.ones(128 * 64)
    square[::128] = 16.0  # keeps the size of each block
    for step in range(100):
        found = rounded(torch.zeros_like(square), square, step)
        square = torch.where(found.square > 8, found.square, found.square * 0.99)
    rest = square[square < 8]
    assert float(rest.log().mean()) == pytest.approx(100 * torch.tensor(0.99).log().item(), abs=0.05)


def test_the_same_step_rounds_the_same_way():
    """So the same batch gives the same weights; another step rounds another way."""
    average = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    one, same, other = (rounded(average, average.square(), step).average for step in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def trained(weight, bits, steps, state=None):
    optimizer = MasterAdamW({"w": weight})
    optimizer.load(state or {})
    optimizer.configure(TrainingConfig(optimizer_bits=bits))
    for _ in range(steps):
        optimizer.zero_grad()
        (weight - torch.linspace(-1, 1, weight.numel())).square().sum().backward()
        optimizer.step(0.01)
    return optimizer


def test_the_state_takes_two_bytes_per_weight_and_continues():
    """A saved state continues bit by bit, and either number of bits reads the other's."""
    weight = nn.Parameter(torch.zeros(12_800))
    optimizer = trained(weight, 8, 5)
    assert sum(tensor.nbytes for tensor in optimizer.state().values()) < 2.1 * weight.numel()
    saved = {name: tensor.clone() for name, tensor in optimizer.state().items()}
    again = nn.Parameter(weight.detach().clone())
    trained(again, 8, 3, saved)
    optimizer.zero_grad()
    for _ in range(3):
        optimizer.zero_grad()
        (weight - torch.linspace(-1, 1, weight.numel())).square().sum().backward()
        optimizer.step(0.01)
    assert torch.equal(weight.detach(), again.detach())
    assert "exp_avg.w" in trained(again, 32, 1, optimizer.state()).state()
    assert "exp_avg_code.w" in trained(again, 8, 1, trained(again, 32, 1).state()).state()


def test_a_training_reaches_what_it_reaches_with_all_bits(make_learner, tiny_dir):
    """Twenty updates raise the log probabilities of the better answers about as far with eight bits as with 32."""
    gains = []
    for bits in (32, 8):
        loaded = load_model(tiny_dir("llama"), device="cpu")
        groups = random_groups(loaded, groups=4, rollouts=2)
        config = resolve(TrainingConfig(learning_rate=1e-3, optimizer_bits=bits, max_logprob_difference=1e9))
        rows = make_batch(groups, config).rows
        before = served_logprobs(loaded, rows)
        learner = make_learner(loaded)
        for _ in range(20):
            learner.update(groups, config)
        after = served_logprobs(loaded, rows)
        gains.append(sum(float((after[r.index] - before[r.index]).sum()) * r.advantages[0] for r in rows))
    assert gains[0] > 10
    assert gains[1] == pytest.approx(gains[0], rel=0.1)

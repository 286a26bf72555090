"""The learner is compared with the sampler token by token."""

from math import isnan
from struct import iter_unpack

import pytest
import torch

from fakes.training_rows import answer_row, row_of
from nat.backend.algorithms.registry import resolve
from nat.backend.training.batch import make_batch
from nat.backend.training.mismatch import token_mismatch
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow


def group(*rewarded):
    """A group of rollouts, each with its reward and its rows."""
    return TrainingGroup(id="a", rollouts=[TrainingRollout(reward=reward, rows=rows) for reward, rows in rewarded])


def differences(groups, algorithm, start):
    """What is reported if the learner gives `start` to every sampled token."""
    rows = make_batch(groups, resolve(TrainingConfig(algorithm=algorithm))).rows
    packed = token_mismatch(groups, rows, {row.index: torch.full((len(row.targets),), start) for row in rows})
    return None if packed is None else [value for (value,) in iter_unpack("<e", packed)]


def test_tokens_are_in_the_order_of_the_job():
    """Rollouts that carry no loss have no difference, nor has a row without an answer any place."""
    silent = TrainingRow(token_ids=[1, 2], spans=[])
    equal = group((1.0, [row_of([1, 2], [None, -1.0])]), (1.0, [row_of([1, 3], [None, -1.0])]))
    mixed = group(
        (0.0, [row_of([1, 2, 3, 4], [None, -1.0, None, -2.0]), silent, row_of([5, 6], [None, -0.5])]),
        (1.0, [row_of([1, 7], [None, -0.25])]),
    )
    found = differences([equal, mixed], "grpo", -0.75)
    assert [isnan(value) for value in found] == [True, True, False, False, False, False]
    assert found[2:] == [0.25, 1.25, -0.25, -0.5]


@pytest.mark.parametrize("sampled", [-1e5, 0.0])
def test_a_difference_that_half_precision_has_not_is_the_largest(sampled):
    """Servers write large numbers for minus infinity."""
    groups = [group((0.0, [row_of([1, 2], [None, sampled])]), (1.0, [row_of([1, 3], [None, -1.0])]))]
    assert differences(groups, "grpo", -1.0) == [65504.0 if sampled else -1.0, 0.0]


def test_texts_have_no_difference():
    """Nobody sampled them."""
    assert differences([group((1.0, [answer_row([1], [2, 3])]))], "sft", -1.0) is None

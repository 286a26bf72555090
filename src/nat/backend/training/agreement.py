"""Tell whether the sampler computes with the weights of an update, and how far that moved the policy.

A few short rows are scored twice, by the learner and through the path that serves requests. A cache of old results,
a merged copy of the weights or an adapter that never arrived would show here, and nowhere else.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from random import Random

import torch
from torch import Tensor

from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.checks import Difference
from nat.backend.training.loss import joined, k3

ByRow = Mapping[int, Tensor]
"""Log probabilities of the sampled tokens of each row, by the row's index."""
SamplerScore = Callable[[LoadedModel, Sequence[Row]], ByRow]
"""Scores rows as the sampler would."""

_MAX_ROWS = 8
_MAX_TOKENS = 1024
_DRAWN_SHARE = 1 / 16
_MIN_DRAWN = 8


def probe_rows(rows: Sequence[Row]) -> list[Row]:
    """Choose a few rows from all over the batch, the shortest of each stretch; at least one."""
    stride = -(-len(rows) // _MAX_ROWS)
    stretches = [rows[start : start + stride] for start in range(0, len(rows), stride)]
    chosen: list[Row] = []
    tokens = 0
    for row in sorted((min(s, key=lambda row: len(row.input_ids)) for s in stretches), key=lambda r: len(r.input_ids)):
        tokens += len(row.input_ids)
        if chosen and tokens > _MAX_TOKENS:
            break
        chosen.append(row)
    return chosen


def drawn_rows(rows: Sequence[Row], random: Random) -> list[Row]:
    """Draw a sixteenth of the rows, at least eight: long ones as often as short ones, so that they stand for all."""
    return random.sample(list(rows), min(len(rows), max(_MIN_DRAWN, ceil(_DRAWN_SHARE * len(rows)))))


def difference(rows: Sequence[Row], one: ByRow, other: ByRow) -> Difference:
    """Compare two computations of the same log probabilities."""
    gap = (_joined(rows, one) - _joined(rows, other)).abs()
    return Difference(mean=float(gap.mean()), largest=float(gap.max()), tokens=len(gap))


def policy_shift(rows: Sequence[Row], before: ByRow, after: ByRow) -> float:
    """Estimate KL(π before‖π after) per token, with k3 on tokens that were sampled before."""
    return float(k3(_joined(rows, before) - _joined(rows, after)).mean())


def _joined(rows: Sequence[Row], by_row: ByRow) -> Tensor:
    return joined(by_row, rows).to("cpu", torch.float64)

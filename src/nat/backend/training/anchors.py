"""What stays fixed while the policy of an update moves: log probabilities to compare with, and what follows of them.

Shapes: K sampled tokens of some rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nat.backend.training.batch import Row
from nat.backend.training.loss import kl_penalty

ByRow = dict[int, Tensor]
"""Values of the sampled tokens of each row, by the row's index."""


@dataclass(frozen=True)
class Anchors:
    """What the loss of K tokens holds on to."""

    start_K: Tensor
    """The learner's log probabilities at the start of the update."""
    reference_K: Tensor | None
    """The reference model's, where the configuration needs them."""
    penalty_K: Tensor | None
    """What the KL penalty adds to the advantages."""


@dataclass
class AnchorTable:
    """The anchors of all rows of an update."""

    start: ByRow = field(default_factory=dict)
    reference: ByRow = field(default_factory=dict)
    penalty: ByRow = field(default_factory=dict)

    def of(self, rows: Sequence[Row]) -> Anchors:
        reference_K, penalty_K = (joined(values, rows) if values else None for values in (self.reference, self.penalty))
        return Anchors(joined(self.start, rows), reference_K, penalty_K)

    def penalise(self, rows: Sequence[Row], coefficient: float) -> None:
        """Compute the KL penalty of the rows of an optimizer step, which compares its tokens with their mean."""
        penalty_K = kl_penalty(joined(self.start, rows), joined(self.reference, rows))
        self.penalty = by_row(rows, coefficient * penalty_K)


def by_row(rows: Sequence[Row], values_K: Tensor) -> ByRow:
    """Split the values of some rows, which are laid out one after another."""
    parts = torch.split(values_K, [len(row.targets) for row in rows])
    return {row.index: part for row, part in zip(rows, parts, strict=True)}


def joined(values: Mapping[int, Tensor], rows: Sequence[Row]) -> Tensor:
    """Lay out the values of some rows one after another."""
    return torch.cat([values[row.index] for row in rows])

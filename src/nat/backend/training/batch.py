"""From the groups of a job to the rows that carry loss, each with its advantage.

A row is cut after its last sampled token, because what follows cannot change the loss; the last token itself
is only a target and never an input.

Shapes: T input tokens of a row, K its sampled tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from nat.backend.training.advantages import BatchAdvantages, batch_advantages
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow


@dataclass(frozen=True)
class Row:
    """One token sequence and what the loss needs to know of it."""

    index: int
    """Position in the batch."""
    group: int
    """Which group it came from."""
    rollout: int
    """Which rollout of the batch it came from; rows of one rollout share it."""
    input_ids: list[int]
    """T tokens that go into the model."""
    positions: list[int]
    """K indices into input_ids; the output there predicts a sampled token."""
    targets: list[int]
    """K sampled tokens."""
    sampler_logprobs: list[float]
    """K log probabilities that the sampler reported."""
    advantage: float


@dataclass(frozen=True)
class Batch:
    """What a job trains on, and what was left out of it."""

    rows: list[Row]
    advantages: BatchAdvantages
    raw_tokens: int
    """Tokens of all rows as they came, trained on or not."""
    truncated_share: float
    """Share of the rollouts that ran into their token limit."""

    @property
    def group_ids(self) -> list[int]:
        """The groups that carry loss."""
        return sorted({row.group for row in self.rows})


def make_batch(groups: Sequence[TrainingGroup], config: TrainingConfig) -> Batch:
    """Compute the advantages over all rollouts, then keep the rows that can carry loss.

    Left out: groups without a signal; with `mask_truncated_completions` truncated rollouts (their reward still
    counts in the comparison); rows in which nothing was sampled.
    """
    advantages = batch_advantages(
        [[rollout.reward for rollout in group.rollouts] for group in groups],
        config.advantage,
        normalize=config.normalize_advantages,
    )
    rows: list[Row] = []
    rollouts = [
        (index, rollout, float(advantage))
        for index, group in enumerate(groups)
        for rollout, advantage in zip(group.rollouts, advantages.groups[index], strict=True)
    ]
    for number, (group_index, rollout, advantage) in enumerate(rollouts):
        if not advantages.has_signal[group_index] or (rollout.truncated and config.mask_truncated_completions):
            continue
        rows.extend(_rollout_rows(rollout, len(rows), group=group_index, number=number, advantage=advantage))
    return Batch(
        rows=rows,
        advantages=advantages,
        raw_tokens=sum(len(row.token_ids) for _, rollout, _ in rollouts for row in rollout.rows),
        truncated_share=sum(rollout.truncated for _, rollout, _ in rollouts) / len(rollouts),
    )


def sampled_tokens_per_rollout(rows: Sequence[Row]) -> dict[int, int]:
    """Count the sampled tokens of each rollout over all of its rows."""
    ordered = sorted(rows, key=attrgetter("rollout"))
    return {number: sum(len(row.targets) for row in own) for number, own in groupby(ordered, key=attrgetter("rollout"))}


def _rollout_rows(
    rollout: TrainingRollout, first_index: int, *, group: int, number: int, advantage: float
) -> list[Row]:
    sampled = [row for row in rollout.rows if row.num_sampled]
    return [
        _row(row, first_index + offset, group=group, rollout=number, advantage=advantage)
        for offset, row in enumerate(sampled)
    ]


def _row(row: TrainingRow, index: int, *, group: int, rollout: int, advantage: float) -> Row:
    sampled = [(at, logprob) for at, logprob in enumerate(row.logprobs) if logprob is not None]
    last = sampled[-1][0]
    return Row(
        index=index,
        group=group,
        rollout=rollout,
        input_ids=row.token_ids[:last],
        positions=[at - 1 for at, _ in sampled],
        targets=[row.token_ids[at] for at, _ in sampled],
        sampler_logprobs=[logprob for _, logprob in sampled],
        advantage=advantage,
    )

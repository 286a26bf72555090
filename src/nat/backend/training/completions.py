"""The completions that a sequence loss compares: which tokens they have, and the slope of the loss at each token.

Shapes: K sampled tokens of a row, S completions.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nat.backend.algorithms.algorithm import Completions
from nat.backend.algorithms.registry import Resolved
from nat.backend.training.batch import Pair, Row
from nat.backend.training.loss import ByRow


@dataclass(frozen=True)
class RowPart:
    """Sampled tokens of a row, from `start` to before `stop`, counted among its K sampled tokens."""

    row: int
    """The row's index in the batch."""
    start: int
    stop: int


@dataclass(frozen=True)
class Completion:
    """What a sequence loss takes as one: an answer, or more of a rollout."""

    group: int
    better: bool
    """Chosen, or desirable."""
    parts: tuple[RowPart, ...]

    def sum(self, values: ByRow) -> Tensor:
        """The sum of these values over its tokens."""
        of_tokens = torch.cat([values[part.row][part.start : part.stop] for part in self.parts])
        return of_tokens.sum(dtype=torch.float64)

    @property
    def num_tokens(self) -> int:
        return sum(part.stop - part.start for part in self.parts)


@dataclass(frozen=True)
class SequenceSlopes:
    """The value of a sequence loss, and minus its slope at the log probability of each token."""

    loss: float
    by_row: ByRow
    """0 for tokens that are in no completion, such as those before the answer where two rollouts part."""
    metrics: Mapping[str, float]


def completions_of(rows: Sequence[Row], pairs: Sequence[Pair], resolved: Resolved) -> list[Completion]:
    """The completions of a batch: the two sides of each pair, chosen ones first, or else its rollouts."""
    own: dict[int, list[Row]] = {}
    for row in rows:
        own.setdefault(row.rollout, []).append(row)
    if resolved.algorithm.pairs is None:
        return [
            Completion(
                part[0].group, part[0].advantages[0] > 0, tuple(RowPart(row.index, 0, len(row.targets)) for row in part)
            )
            for part in own.values()
        ]
    rest = getattr(resolved.options, "completion", "rest") == "rest"
    return [
        Completion(pair.group, side == 0, tuple(_side(own[pair.rollouts[side]], pair, side, rest=rest)))
        for side in (0, 1)
        for pair in pairs
    ]


def _side(rows: Sequence[Row], pair: Pair, side: int, *, rest: bool) -> Iterator[RowPart]:
    first = rows[pair.rows[side]]
    # The last answer that begins before the first token that differs: it has it, or ends before it.
    start, stop = [(start, stop) for start, stop in first.answers if first.positions[start] < pair.token][-1]
    if not rest:
        yield RowPart(first.index, start, stop)
        return
    yield RowPart(first.index, start, len(first.targets))
    for row in rows[pair.rows[side] + 1 :]:
        yield RowPart(row.index, 0, len(row.targets))


def sequence_slopes(
    completions: Sequence[Completion],
    current: ByRow,
    reference: ByRow,
    resolved: Resolved,
    *,
    mismatched_kl: float = 0.0,
) -> SequenceSlopes:
    """Evaluate the loss of an optimizer step at the current log probabilities of its tokens."""
    sums_S = torch.stack([each.sum(current) for each in completions]).requires_grad_()
    seen = Completions(
        logprobs_S=sums_S,
        reference_S=torch.stack([each.sum(reference) for each in completions]),
        tokens_S=torch.tensor(
            [float(each.num_tokens) for each in completions], device=sums_S.device, dtype=sums_S.dtype
        ),
        better_S=torch.tensor([each.better for each in completions], device=sums_S.device),
        mismatched_kl=mismatched_kl,
        beta=resolved.config.beta,
        options=resolved.options,
    )
    assert resolved.algorithm.sequence_loss is not None, "only such algorithms have completions"
    with torch.enable_grad():
        loss = resolved.algorithm.sequence_loss(seen)
        (slope_S,) = torch.autograd.grad(loss, sums_S)
    by_row = {row: torch.zeros_like(values, dtype=sums_S.dtype) for row, values in current.items()}
    for each, slope in zip(completions, slope_S, strict=True):
        for part in each.parts:
            by_row[part.row][part.start : part.stop] -= slope
    return SequenceSlopes(float(loss.detach()), by_row, _metrics(seen, paired=resolved.algorithm.pairs is not None))


def _metrics(seen: Completions, *, paired: bool) -> dict[str, float]:
    """What TRL logs: implicit rewards β(log π - log π_ref), and the log probabilities of completions."""
    with torch.no_grad():
        reward_S = seen.beta * seen.log_ratio_S
        found: dict[str, float] = {}
        for name, of in (("chosen", seen.chosen), ("rejected", seen.rejected)):
            if len(of(reward_S)):
                found |= {
                    f"rewards_{name}": float(of(reward_S).mean()),
                    f"logps_{name}": float(of(seen.logprobs_S).mean()),
                }
        if paired:
            margin_P = seen.chosen(reward_S) - seen.rejected(reward_S)
            found |= {
                "rewards_margin": float(margin_P.mean()),
                "rewards_accuracy": float((margin_P > 0).to(margin_P.dtype).mean()),
            }
    return found


def mismatched(rows: Sequence[Row], completions: Sequence[Completion], *, longest: int) -> list[Row]:
    """For each completion the rows of another one after its own prompts, if possible of another group.

    Their log ratios estimate how far the policy is from the reference on answers that it would not give. Prompts lose
    their beginning where a row would have more than `longest` tokens.
    """
    by_index = {row.index: row for row in rows}
    own = [[by_index[part.row] for part in each.parts] for each in completions]
    pairs = [
        (mine[min(place, len(mine) - 1)], row)
        for mine, other in zip(own, _others(completions), strict=True)
        for place, row in enumerate(own[other])
    ]
    return [_with_completion_of(mine, other, index, longest) for index, (mine, other) in enumerate(pairs)]


def _others(completions: Sequence[Completion]) -> Iterator[int]:
    """For each completion the place of one of another group, or else of the one before it."""
    groups = [each.group for each in completions]
    size, largest = len(groups), max(Counter(groups).values())
    for number, group in enumerate(groups):
        places = ((number - distance) % size for distance in range(largest, largest + size))
        yield next((place for place in places if groups[place] != group), number - 1)


def _with_completion_of(row: Row, other: Row, index: int, longest: int) -> Row:
    prompt, completion = row.input_ids[: row.positions[0] + 1], other.input_ids[other.positions[0] + 1 :]
    prompt = prompt[max(0, len(prompt) + len(completion) + 1 - longest) :]
    shift = len(prompt) - other.positions[0] - 1
    return Row(
        index=index,
        group=row.group,
        rollout=index,
        input_ids=[*prompt, *completion],
        positions=[position + shift for position in other.positions],
        targets=other.targets,
        sampler_logprobs=other.sampler_logprobs,
        advantages=other.advantages,
        temperatures=other.temperatures,
    )

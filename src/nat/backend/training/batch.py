"""Make the rows that carry loss from the groups of a job, each with its advantages.

A row ends with its last sampled token, because later tokens do not change the loss. That last token is only a target,
never an input.

Shapes: T input tokens of a row, K its sampled tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter, itemgetter

from nat.backend.algorithms.advantages import BatchAdvantages, Returns, batch_advantages
from nat.backend.algorithms.registry import Resolved
from nat.errors import UpdateRejected
from nat.preferences.parting import first_parting
from nat.wire.training import SampledAt, SampledBy, TrainingGroup, TrainingRollout, TrainingRow


@dataclass(frozen=True)
class Row:
    """One token sequence, as the loss needs it."""

    index: int
    """Position in the batch."""
    group: int
    """Index of its group."""
    rollout: int
    """Index of its rollout in the batch; rows of one rollout share it."""
    input_ids: list[int]
    """T tokens that go into the model."""
    positions: list[int]
    """K indices into input_ids; the output there predicts a sampled token."""
    targets: list[int]
    """K sampled tokens."""
    sampler_logprobs: Sequence[float | None]
    """K log probabilities that the sampler reported; None for tokens that it did not sample."""
    advantages: list[float]
    """K advantages: each sampled token has that of its answer, or of its rollout."""
    weight: float = 1.0
    """Factor of its tokens in the loss."""
    temperatures: list[float] | None = None
    """K temperatures of the sampled tokens; None if all are 1."""
    policy_versions: list[str | None] | None = None
    """K versions of the weights that sampled the tokens; None if none is known."""
    teacher_logprobs: Sequence[float | None] | None = None
    """K log probabilities that a teacher gives; None where it gave none."""

    @property
    def sampled_at(self) -> list[float]:
        """The temperature of each of the K sampled tokens."""
        return self.temperatures or [1.0] * len(self.targets)

    @property
    def num_tokens(self) -> int:
        """Number of tokens, including the last sampled one."""
        return len(self.input_ids) + 1


@dataclass(frozen=True)
class Pair:
    """Two rollouts of a group, the better one first."""

    group: int
    rollouts: tuple[int, int]
    """Their indices in the batch."""
    rows: tuple[int, int]
    """Where the two part: the row of each, among its rows in which something was sampled."""
    token: int
    """Position in both rows of the first token that differs."""


@dataclass(frozen=True)
class Batch:
    """The rows that a job trains on, and the advantages of all groups."""

    rows: list[Row]
    paired: bool
    """True if the algorithm learns from pairs."""
    pairs: list[Pair]
    pairs_left_out: int
    """Pairs of different rewards that part in no answer of the model."""
    advantages: BatchAdvantages
    truncated_share: float
    """Share of the rollouts that reached their token limit."""
    share_without_advantage: float
    """Share of the rollouts without an answer that is better or worse than what it is compared with."""

    @property
    def group_ids(self) -> list[int]:
        """The groups that carry loss."""
        return sorted({row.group for row in self.rows})


def make_batch(groups: Sequence[TrainingGroup], resolved: Resolved) -> Batch:
    """Compute the advantages over all rollouts, then keep the rows that can carry loss.

    Left out: rows in which nothing was sampled; with `mask_truncated_completions` truncated rollouts (their reward
    still counts in the comparison); groups of which no rollout is left that is better or worse than what it is compared
    with. If the whole batch is compared, it is left out only as a whole. An algorithm that learns from pairs leaves out
    the rollouts that are in none.

    Raises:
        UpdateRejected: advantages are given where the settings compute them, or the other way round; or tokens have no
            log probability, and the algorithm needs it.

    """
    config, algorithm = resolved.config, resolved.algorithm
    advantage = algorithm.advantage
    if algorithm.needs_logprobs:
        _check_logprobs(groups, algorithm.name)
    advantages = _advantages(groups, resolved)
    rows: list[Row] = []
    rollouts = [
        (index, rollout, own)
        for index, group in enumerate(groups)
        for rollout, own in _by_rollout(group, advantages.groups[index].tolist())
    ]
    usable = [
        any(row.num_sampled for row in rollout.rows) and not (rollout.truncated and config.mask_truncated_completions)
        for _, rollout, _ in rollouts
    ]
    of_teacher = algorithm.teacher_advantage is not None
    _check_teacher(groups, resolved)
    compared = [0 if advantage.across_groups else index for index, _, _ in rollouts]
    with_signal = {compared[number] for number, (_, _, own) in enumerate(rollouts) if usable[number] and any(own)}
    kept = {
        number
        for number, (_, _, own) in enumerate(rollouts)
        if usable[number]
        and (of_teacher or compared[number] in with_signal)
        and (any(own) or not algorithm.needs_advantage)
    }
    pairs: list[Pair] = []
    pairs_left_out = 0
    if algorithm.pairs is not None:
        pairs, pairs_left_out = _pairs(
            [(n, index, r) for n, (index, r, _) in enumerate(rollouts) if n in kept], resolved
        )
        kept = {number for pair in pairs for number in pair.rollouts}
    for number, (index, rollout, own) in enumerate(rollouts):
        if number in kept:
            rows.extend(_rollout_rows(rollout, len(rows), group=index, number=number, advantages=own))
    return Batch(
        rows=rows,
        paired=algorithm.pairs is not None,
        pairs=pairs,
        pairs_left_out=pairs_left_out,
        advantages=advantages,
        truncated_share=sum(rollout.truncated for _, rollout, _ in rollouts) / len(rollouts),
        share_without_advantage=sum(not (any(own) or of_teacher) for _, _, own in rollouts) / len(rollouts),
    )


def sampled_tokens_per_rollout(rows: Sequence[Row]) -> dict[int, int]:
    """Count the sampled tokens of each rollout over all of its rows."""
    ordered = sorted(rows, key=attrgetter("rollout"))
    return {number: sum(len(row.targets) for row in own) for number, own in groupby(ordered, key=attrgetter("rollout"))}


def _check_logprobs(groups: Sequence[TrainingGroup], name: str) -> None:
    for group in groups:
        for number, rollout in enumerate(group.rollouts):
            if any(row.logprobs[at] is None for row in rollout.rows for at in row.targets):
                raise UpdateRejected(
                    f"rollout {number} of the group {group.id!r} has tokens without a log probability, "
                    f"which {name!r} needs of each token that it trains",
                    kind="invalid_batch",
                    hint="train demonstrations with sft, and preferences with dpo or kto",
                )


def _check_teacher(groups: Sequence[TrainingGroup], resolved: Resolved) -> None:
    """Raise UpdateRejected if rows lack a teacher's log probabilities, or have some that nothing would use."""
    wanted = resolved.algorithm.teacher_advantage is not None
    name = resolved.algorithm.name
    for group in groups:
        for number, rollout in enumerate(group.rollouts):
            if any((row.teacher_logprobs is not None) != wanted for row in rollout.rows):
                seen = "no teacher_logprobs, which" if wanted else "teacher_logprobs, which only distill uses; it is"
                raise UpdateRejected(
                    f"rollout {number} of the group {group.id!r} has rows with {seen} "
                    + (f"{name!r} learns from" if wanted else f"to be trained by {name!r}"),
                    kind="invalid_batch",
                    hint="name a `teacher` in the trainer adapter with algorithm distill, and none with others",
                )


def _pairs(usable: Sequence[tuple[int, int, TrainingRollout]], resolved: Resolved) -> tuple[list[Pair], int]:
    """The pairs of each group that part in an answer, and the number of those that do not."""
    choose = resolved.algorithm.pairs
    assert choose is not None, "only such algorithms have pairs"
    found: list[Pair] = []
    left_out = 0
    for group, members in groupby(usable, key=itemgetter(1)):
        own = [(number, rollout) for number, _, rollout in members]
        for better, worse in choose([rollout.reward for _, rollout in own], resolved.options):
            mine, its = ([row for row in own[place][1].rows if row.num_sampled] for place in (better, worse))
            if (parted := first_parting(mine, its)) is None:
                left_out += 1
            else:
                found.append(Pair(group, (own[better][0], own[worse][0]), parted[0], parted[1].token))
    return found, left_out


def _advantages(groups: Sequence[TrainingGroup], resolved: Resolved) -> BatchAdvantages:
    given = [[rollout.advantage for rollout in group.rollouts] for group in groups]
    advantage = resolved.algorithm.advantage
    wanted = advantage.compare is None
    odd = next(((g, r) for g, own in enumerate(given) for r, a in enumerate(own) if (a is not None) != wanted), None)
    if odd is not None:
        seen = "has no advantage" if wanted else "carries an advantage"
        raise UpdateRejected(
            f"groups.{odd[0]}.rollouts.{odd[1]} {seen}, but config.advantage is {resolved.factor('advantage')!r}",
            kind="invalid_batch",
            hint="give every rollout an advantage and set config.advantage to 'given', or give none",
        )
    rows = (row for group in groups for rollout in group.rollouts for row in rollout.rows)
    if wanted and any(row.returns is not None for row in rows):
        raise UpdateRejected(
            "rows have returns, but config.advantage is 'given', which compares no returns",
            kind="invalid_batch",
            hint="send no returns, or let the backend compare them: set config.advantage to another method",
        )
    return batch_advantages(
        [Returns.of([rollout.returns for rollout in group.rollouts]) for group in groups],
        advantage,
        normalize=resolved.config.normalize_advantages,
        given=[[a for a in own if a is not None] for own in given],
    )


def _by_rollout(group: TrainingGroup, advantages: Sequence[float]) -> Iterator[tuple[TrainingRollout, list[float]]]:
    """Give each rollout with the advantages of its returns."""
    rest = iter(advantages)
    for rollout in group.rollouts:
        yield rollout, list(islice(rest, len(rollout.returns)))


def _rollout_rows(
    rollout: TrainingRollout, first_index: int, *, group: int, number: int, advantages: Sequence[float]
) -> list[Row]:
    rest = iter(advantages)
    sampled = [row for row in rollout.rows if row.num_sampled]
    return [
        _row(
            row,
            first_index + offset,
            group=group,
            rollout=number,
            advantages=_of_tokens(row, advantages[0] if row.returns is None else rest),
            weight=rollout.weight,
        )
        for offset, row in enumerate(sampled)
    ]


def _of_tokens(row: TrainingRow, advantages: float | Iterator[float]) -> list[float]:
    """The advantage of each sampled token: that of the rollout, or the next ones, one for each answer."""
    if isinstance(advantages, float):
        return [advantages] * row.num_sampled
    return [a for answer, a in zip(row.returns or (), advantages, strict=False) for _ in range(answer.num_tokens)]


def _row(row: TrainingRow, index: int, *, group: int, rollout: int, advantages: list[float], weight: float) -> Row:
    targets = row.targets
    return Row(
        index=index,
        group=group,
        rollout=rollout,
        input_ids=row.token_ids[: targets[-1]],
        positions=[at - 1 for at in targets],
        targets=[row.token_ids[at] for at in targets],
        sampler_logprobs=[row.logprobs[at] for at in targets],
        advantages=advantages,
        weight=weight,
        temperatures=None if row.temperatures is None else _temperatures(row.temperatures),
        policy_versions=None if row.policy_versions is None else _versions(row.policy_versions),
        teacher_logprobs=None if row.teacher_logprobs is None else [row.teacher_logprobs[at] for at in targets],
    )


def _temperatures(entries: Sequence[SampledAt]) -> list[float]:
    return [entry.temperature for entry in entries for _ in range(entry.num_tokens)]


def _versions(entries: Sequence[SampledBy]) -> list[str | None]:
    return [entry.policy_version for entry in entries for _ in range(entry.num_tokens)]

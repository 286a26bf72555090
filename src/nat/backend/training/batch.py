"""Make the rows that carry loss from the groups of a job, each with its advantages.

A row ends with its last sampled token, because later tokens do not change the loss. That last token is only a target,
never an input.

Shapes: T input tokens of a row, K its sampled tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, groupby, islice, pairwise, repeat
from operator import attrgetter, itemgetter
from typing import TypeVar

from nat.backend.algorithms.advantages import BatchAdvantages, Returns, batch_advantages
from nat.backend.algorithms.registry import Resolved
from nat.backend.model import LoadedModel
from nat.errors import UpdateRejected
from nat.preferences.pairs import PairRule, SkipCause
from nat.preferences.parting import Marked, first_parting, marked_tokens
from nat.secrets import excerpt
from nat.wire.training import Span, TrainingGroup, TrainingJob, TrainingRollout

T = TypeVar("T")


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
    answers: Sequence[tuple[int, int]] = ()
    """Begin and end of each answer among the K sampled tokens; for pairs, which compare answers."""

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
    """The rows that a job trains on."""

    rows: list[Row]
    paired: bool
    """True if the algorithm learns from pairs."""
    pairs: list[Pair]
    pairs_left_out: int
    """Pairs of different rewards that part in no answer of the model."""
    truncated_share: float
    """Share of the rollouts that reached their token limit."""
    share_without_advantage: float
    """Share of the rollouts without an answer that is better or worse than what it is compared with."""


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
        (index, rollout, own)  # with the advantages of its returns
        for index, group in enumerate(groups)
        for rest in [iter(advantages.groups[index].tolist())]
        for rollout in group.rollouts
        for own in [list(islice(rest, len(rollout.returns)))]
    ]
    usable = [
        any(row.num_sampled for row in rollout.rows) and not (rollout.truncated and config.mask_truncated_completions)
        for _, rollout, _ in rollouts
    ]
    of_teacher = algorithm.teacher_advantage is not None
    _check_teacher(groups, resolved)
    compared = [0 if advantage.among == "batch" else index for index, _, _ in rollouts]
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
        own_group = [(number, index, rollout) for number, (index, rollout, _) in enumerate(rollouts) if number in kept]
        pairs, pairs_left_out = _pairs(own_group, algorithm.pairs(resolved.options))
        kept = {number for pair in pairs for number in pair.rollouts}
    for number, (index, rollout, own) in enumerate(rollouts):
        if number in kept:
            rows.extend(_rollout_rows(rollout, len(rows), group=index, number=number, advantages=own))
    return Batch(
        rows=rows,
        paired=algorithm.pairs is not None,
        pairs=pairs,
        pairs_left_out=pairs_left_out,
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
            if any(span.logprobs is None for row in rollout.rows for span in row.spans):
                raise UpdateRejected(
                    f"{_named(group, number)} has tokens without a log probability, "
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
            if any((span.teacher_logprobs is not None) != wanted for row in rollout.rows for span in row.spans):
                seen = "no teacher_logprobs, which" if wanted else "teacher_logprobs, which only distill uses; it is"
                raise UpdateRejected(
                    f"{_named(group, number)} has spans with {seen} "
                    + (f"{name!r} learns from" if wanted else f"to be trained by {name!r}"),
                    kind="invalid_batch",
                    hint="name a `teacher` in the trainer adapter with algorithm distill, and none with others",
                )


def _named(group: TrainingGroup, number: int) -> str:
    return f"rollout {number} of the group {excerpt(repr(group.id), 100)}"  # clients choose the id


Members = Sequence[tuple[int, int, TrainingRollout]]
"""Number, group and record of rollouts."""


def _pairs(usable: Members, rule: PairRule) -> tuple[list[Pair], int]:
    found: list[Pair] = []
    left_out = 0
    for _, members in groupby(usable, key=itemgetter(1)):
        own = list(members)

        def part(better: int, worse: int, own: Members = own) -> Pair | SkipCause:
            (number, group, rollout), (other, _, other_rollout) = own[better], own[worse]
            parted = first_parting(_marked(rollout), _marked(other_rollout))
            if isinstance(parted, SkipCause):
                return parted
            return Pair(group, (number, other), (parted.own, parted.other), parted.at)

        pairs, refused, _ = rule.choose([rollout.reward for _, _, rollout in own], part)
        found += pairs
        left_out += len(refused)
    return found, left_out


def _marked(rollout: TrainingRollout) -> list[Marked]:
    return [marked_tokens(row) for row in rollout.rows if row.num_sampled]


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
    spans = (span for group in groups for rollout in group.rollouts for row in rollout.rows for span in row.spans)
    if wanted and any(span.value is not None for span in spans):
        raise UpdateRejected(
            "spans have values, but config.advantage is 'given', which compares none",
            kind="invalid_batch",
            hint="send no values, or let the backend compare them: set config.advantage to another method",
        )
    return batch_advantages(
        [Returns.of([rollout.returns for rollout in group.rollouts]) for group in groups],
        advantage,
        normalize=resolved.config.normalize_advantages,
        given=[[a for a in own if a is not None] for own in given],
    )


def _rollout_rows(
    rollout: TrainingRollout, first_index: int, *, group: int, number: int, advantages: Sequence[float]
) -> list[Row]:
    rest = cycle(advantages)  # one for each answer, or one for all
    found = []
    for offset, row in enumerate(row for row in rollout.rows if row.spans):
        targets, spans = row.targets, row.spans
        found.append(
            Row(
                index=first_index + offset,
                group=group,
                rollout=number,
                input_ids=row.token_ids[: targets[-1]],
                positions=[at - 1 for at in targets],
                targets=[row.token_ids[at] for at in targets],
                answers=list(pairwise(accumulate((span.size for span in spans), initial=0))),
                sampler_logprobs=[x for span in spans for x in span.logprobs or repeat(None, span.size)],
                advantages=[a for span, a in zip(spans, rest, strict=False) for _ in range(span.size)],
                weight=rollout.weight,
                temperatures=_of_tokens(spans, [span.temperature for span in spans], 1.0),
                policy_versions=_of_tokens(spans, [span.policy_version for span in spans], None),
                teacher_logprobs=[x for span in spans for x in span.teacher_logprobs or ()] or None,
            )
        )
    return found


def _of_tokens(spans: Sequence[Span], values: Sequence[T], usual: T) -> list[T] | None:
    if all(value == usual for value in values):
        return None
    return [value for span, value in zip(spans, values, strict=True) for _ in range(span.size)]


def batch_findings(job: TrainingJob, loaded: LoadedModel) -> list[str]:
    """Findings that make a batch unusable for this model, each with its place."""
    findings = []
    sampled = 0
    for g, group in enumerate(job.groups):
        for r, rollout in enumerate(group.rollouts):
            for n, row in enumerate(rollout.rows):
                place = f"groups.{g}.rollouts.{r}.rows.{n}"
                sampled += row.num_sampled
                if len(row.token_ids) > loaded.max_seq_length:
                    findings.append(f"{place}: {len(row.token_ids)} tokens; the context has {loaded.max_seq_length}")
                if (outside := next((t for t in row.token_ids if not 0 <= t < loaded.vocab_size), None)) is not None:
                    findings.append(f"{place}.token_ids: {outside} is outside the vocabulary of {loaded.vocab_size}")
    if not sampled:
        findings.append("groups: no row has a span, so there is nothing to train on")
    return findings

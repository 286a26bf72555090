"""Compare sampler and learner on the same tokens, and measure how far an update moved the policy.

A few short rows are scored twice after an update, by the learner and through the path that serves requests. This finds
a stale cache, a stale merged copy of the weights, and an adapter that never arrived; nothing else does.

Shapes: K sampled tokens of a row.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from nat.backend.inference.batch import StepBatch
from nat.backend.inference.plain import PlainBatch, batch_of, slots_of
from nat.backend.inference.scheduler import Chunk
from nat.backend.model import LoadedModel, token_logprobs
from nat.backend.training.batch import Row
from nat.backend.training.checks import Difference
from nat.backend.training.loss import ByRow, joined, k3
from nat.backend.training.micro_batch import known, logprob_tensor, shared_prefix, temperature_tensor

_MAX_ROWS = 8
_MAX_TOKENS = 1024
_ENOUGH = 128
"""Sampled tokens, over which the mean difference is not a matter of a few."""
_DRAWN_SHARE = 1 / 16
_TOGETHER = 4
"""Rows of a group of which all but the first cost little."""
_MOST_DRAWN, _MOST_DRAWN_TOKENS = 32, 512
"""Bounds on rows beyond that share."""


def probe_rows(rows: Sequence[Row]) -> list[Row]:
    """Choose a few rows of the groups with the shortest ones, or one or two beginnings of longer rows.

    Up to four rows of a group come together, because they share the tokens of their prompt.
    """
    beginnings, groups = list[Row](), dict[int, list[Row]]()
    for row in rows:
        last = min(_ENOUGH, len(row.targets))
        beginning = replace(_with_targets(row, range(last)), input_ids=row.input_ids[: row.positions[last - 1] + 1])
        beginnings.append(beginning)
    for row in sorted(beginnings, key=lambda row: len(row.input_ids)):
        groups.setdefault(row.group, []).append(row)
    chosen: list[Row] = []
    tokens = targets = 0
    for together in groups.values():
        for row, own in _with_own_tokens(together[:_TOGETHER]):
            tokens += own
            if chosen and (len(chosen) == _MAX_ROWS or tokens > _MAX_TOKENS or targets >= _ENOUGH):
                return chosen
            chosen.append(row)
            targets += len(row.targets)
    return chosen


def endings(rows: Sequence[Row], count: int) -> list[Row]:
    """The rows with the last `count` of their sampled tokens each."""
    return [_with_targets(row, range(max(0, len(row.targets) - count), len(row.targets))) for row in rows]


def thinned(rows: Sequence[Row], limit: int) -> list[Row]:
    """Keep at most `limit` sampled tokens of the rows, evenly spread over each, with the last one; at least one."""
    count = max(1, limit // len(rows))
    found = []
    for row in rows:
        size = len(row.targets)
        kept = sorted({size - 1 - size * number // count for number in range(count)}) if count < size else range(size)
        found.append(_with_targets(row, kept))
    return found


def _with_targets(row: Row, kept: Sequence[int]) -> Row:
    return replace(
        row,
        positions=[row.positions[k] for k in kept],
        targets=[row.targets[k] for k in kept],
        sampler_logprobs=[row.sampler_logprobs[k] for k in kept],
        advantages=[row.advantages[k] for k in kept],
        temperatures=None if row.temperatures is None else [row.temperatures[k] for k in kept],
        policy_versions=None if row.policy_versions is None else [row.policy_versions[k] for k in kept],
        teacher_logprobs=None if row.teacher_logprobs is None else [row.teacher_logprobs[k] for k in kept],
        answers=(),
    )


def of_tokens(chosen: Sequence[Row], rows: Sequence[Row], values: ByRow) -> ByRow:
    """The values of the tokens that `chosen` has kept of some of the rows."""
    whole = {row.index: row for row in rows}
    return {
        row.index: values[row.index][[whole[row.index].positions.index(position) for position in row.positions]]
        for row in chosen
    }


def drawn_rows(rows: Sequence[Row], random: Random) -> list[Row]:
    """Draw a sixteenth of the rows, up to 32 if those are short; they represent rows of all lengths.

    Up to four rows of a group come together, because they share the tokens of their prompt.
    """
    order = random.sample(list(rows), len(rows))
    seen, turns = Counter[int](), dict[tuple[int, int], list[Row]]()
    for row in order:
        turns.setdefault((seen[row.group] // _TOGETHER, row.group), []).append(row)
        seen[row.group] += 1
    drawn, tokens, share = list[Row](), 0, ceil(_DRAWN_SHARE * len(rows))
    for _, together in sorted(turns.items(), key=lambda turn: turn[0][0]):
        for row, own in _with_own_tokens(together):
            tokens += own
            if len(drawn) >= share and (tokens > _MOST_DRAWN_TOKENS or len(drawn) >= _MOST_DRAWN):
                return drawn
            drawn.append(row)
    return drawn


def _with_own_tokens(together: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Rows of a group, each with the number of its tokens; those of the common prompt count for the first one alone."""
    prompt = shared_prefix(together)
    for place, row in enumerate(together):
        yield row, len(row.input_ids) - prompt * (place > 0)


def difference(rows: Sequence[Row], one: ByRow, other: ByRow) -> Difference:
    """Compare two computations of the same log probabilities."""
    return _difference((_joined(rows, one) - _joined(rows, other)).abs())


def sampler_difference(rows: Sequence[Row], start: ByRow) -> Difference:
    """Compare the sampler's log probabilities with those of the weights at an update's start, where both are."""
    of_sampler, cpu = [logprob for row in rows for logprob in row.sampler_logprobs], torch.device("cpu")
    return _difference((_joined(rows, start) - logprob_tensor(of_sampler, cpu)).abs()[known(of_sampler, cpu)])


def compared_tokens(rows: Sequence[Row], version: str | None) -> Tensor | None:
    """Tell for each token if its log probability is compared with the policy's; gives bool [K], or None for all.

    It is if the sampler gave one, with the weights of this version where the token names its weights.
    """
    sampled_K = known([logprob for row in rows for logprob in row.sampler_logprobs], torch.device("cpu"))
    if version is None:
        return None if sampled_K.all() else sampled_K
    versions = [each for row in rows for each in row.policy_versions or [None] * len(row.targets)]
    return sampled_K & torch.tensor([each is None or each == version for each in versions])


def _difference(gap: Tensor) -> Difference:
    if not len(gap):
        return Difference(mean=0.0, largest=0.0, tokens=0)
    return Difference(mean=float(gap.mean()), largest=float(gap.max()), tokens=len(gap))


class Shift(NamedTuple):
    """How far an update moved the policy, in nats per token."""

    kl: float
    """Estimate of KL(π before‖π after), with k3 on tokens that were sampled before the update."""
    unasked: float
    """The part of it on tokens whose probability did not move the way that their advantage asks for."""


def policy_shift(rows: Sequence[Row], before: ByRow, after: ByRow, *, advantages: bool = True) -> Shift:
    """Measure a shift; without `advantages`, nothing of it counts as asked for."""
    moved_K = _joined(rows, after) - _joined(rows, before)
    asked_K = torch.tensor([a for row in rows for a in row.advantages], dtype=moved_K.dtype) * advantages
    kl_K = k3(-moved_K)
    return Shift(float(kl_K.mean()), float(kl_K.where(moved_K * asked_K <= 0, 0.0).mean()))


def _joined(rows: Sequence[Row], by_row: ByRow) -> Tensor:
    return joined(by_row, rows).cpu().to(torch.float64)


@torch.no_grad()
def served_logprobs(loaded: LoadedModel, rows: Sequence[Row], decoded: int = 1) -> ByRow:
    """Score the sampled tokens of each row on the sampler's path, with its cache; gives log probabilities [K] by row.

    A request goes through three kinds of step: the first half of a row enters as a new prompt, the rest as its
    continuation, the last tokens, `decoded` of them or all of that half, as decoding steps of one token. What the rows
    of a group have in common is computed for one of them and copied to the others, as the prefix cache does.
    """
    slots = sorted(rows, key=lambda row: -len(row.input_ids))
    cache = slots_of(loaded)
    cache.reserve(len(slots), len(slots[0].input_ids))
    found: dict[int, list[Tensor]] = {row.index: [] for row in rows}

    def run(decoding: list[Chunk], prefill: list[Chunk]) -> None:
        if decoding or prefill:
            for index, part_K in _step(loaded, batch_of(cache, decoding, prefill, loaded.device), slots):
                found[index].append(part_K)

    ends = [len(row.input_ids) for row in slots]
    lasts = [max(1, end // 2, end - decoded) for end in ends]
    copies = _shared(slots, lasts)
    own = [slot for slot in range(len(slots)) if slot not in copies]
    run([], [_chunk(slots, slot, 0, max(1, ends[slot] // 2)) for slot in own])
    run([], [chunk for slot in own if (chunk := _chunk(slots, slot, max(1, ends[slot] // 2), lasts[slot])).token_ids])
    for slot, (source, length) in copies.items():
        cache.move(source, slot, length)
    run([], [chunk for slot, (_, at) in copies.items() if (chunk := _chunk(slots, slot, at, lasts[slot])).token_ids])
    for step in range(decoded):
        run(
            [_chunk(slots, slot, at + step, at + step + 1) for slot, at in enumerate(lasts) if at + step < ends[slot]],
            [],
        )
    return {index: torch.cat(parts) for index, parts in found.items()}


def _chunk(slots: Sequence[Row], slot: int, start: int, end: int) -> Chunk:
    return Chunk(slot, start, slots[slot].input_ids[start:end])


def _shared(slots: Sequence[Row], lasts: Sequence[int]) -> dict[int, tuple[int, int]]:
    groups: dict[int, list[int]] = {}
    for slot, row in enumerate(slots):
        groups.setdefault(row.group, []).append(slot)
    found: dict[int, tuple[int, int]] = {}
    for source, *others in groups.values():
        common = shared_prefix([slots[slot] for slot in (source, *others)])
        if common:
            found |= {slot: (source, min(common, lasts[source], lasts[slot])) for slot in others}
    return found


def _step(loaded: LoadedModel, batch: StepBatch | PlainBatch, slots: Sequence[Row]) -> list[tuple[int, Tensor]]:
    keep, targets, temperatures, sizes, at = [], [], [], [], 0
    for chunk in batch.order:
        row = slots[chunk.slot]
        mine = [number for number, position in enumerate(row.positions) if chunk.start <= position < chunk.end]
        keep += [at + row.positions[number] - chunk.start for number in mine]
        targets += [row.targets[number] for number in mine]
        temperatures += [row.sampled_at[number] for number in mine]
        sizes.append(len(mine))
        at += len(chunk.token_ids)
    # A step runs even without scored tokens, because later steps read its keys and values.
    logits_KV = loaded.sampler_logits(batch, torch.tensor(keep or [0], device=loaded.device))
    if not keep:
        return []
    targets_K, at_K = torch.tensor(targets, device=loaded.device), temperature_tensor(temperatures, loaded.device)
    logprobs_K = token_logprobs(logits_KV, targets_K, at_K)
    parts = torch.split(logprobs_K, sizes)
    return [(slots[chunk.slot].index, part_K) for chunk, part_K in zip(batch.order, parts, strict=True)]


@dataclass(frozen=True)
class Probe:
    """How an update is proven to be served: what sampler and learner both score after it.

    The default is that of a sampler that shares the learner's weights.
    """

    score: Callable[[LoadedModel, Sequence[Row]], ByRow] = served_logprobs
    """Scores rows on the sampler's path, after it has taken over the weights."""
    choose: Callable[[Sequence[Row]], list[Row]] = probe_rows
    """Chooses tokens from the rows of the batch."""

"""How far the learner was from the sampler at each trained token: the packed differences of the rows of an example.

A difference is the learner's log probability before the update less the sampler's, as a little-endian float16; NaN
stands for one that is not known. Those of an example follow each other in the order of its trained rollouts, their rows
and sampled tokens, which the rollouts' records have. Pure.
"""

import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import isfinite, nan
from operator import attrgetter
from typing import Any, NamedTuple

from nat.runs.rollouts import RolloutRecord
from nat.wire.training import TrainingRow

_UNKNOWN = struct.pack("<e", nan)
_SIZE = len(_UNKNOWN)


class RowMismatch(NamedTuple):
    """A row of a job, and the packed differences of its sampled tokens; none if they are not known."""

    row: TrainingRow
    differences: bytes = b""


def in_rows(rows: Sequence[TrainingRow], packed: bytes | None) -> list[RowMismatch]:
    """The differences of a job's tokens by its rows; they are not known if they do not belong to these rows."""
    if packed is None or len(packed) != _SIZE * sum(row.num_sampled for row in rows):
        return [RowMismatch(row) for row in rows]
    places = accumulate((_SIZE * row.num_sampled for row in rows), initial=0)
    return [RowMismatch(row, packed[begin:end]) for row, (begin, end) in zip(rows, pairwise(places), strict=True)]


def by_example(records: Sequence[RolloutRecord], compared: Iterable[RowMismatch]) -> dict[str, bytes]:
    """The differences of each example with at least one, for the records of an epoch and the rows of its job."""
    found: dict[str, list[bytes]] = {}
    for record, own in _by_rollout(records, compared):
        parts = [differences or _UNKNOWN * row.num_sampled for row, differences in own]
        found.setdefault(record.example_id, []).extend(parts)
    joined = {example: b"".join(parts) for example, parts in found.items()}
    return {example: packed for example, packed in joined.items() if packed.replace(_UNKNOWN, b"")}


def taught_rows(
    records: Sequence[RolloutRecord], sent: Iterable[RowMismatch]
) -> dict[tuple[str, int], list[TrainingRow]]:
    """The rows as they were sent of each rollout, by example and generation, that a teacher has scored."""
    return {
        (record.example_id, record.generation): [row for row, _ in own]
        for record, own in _by_rollout(records, sent)
        if any(row.taught for row, _ in own)
    }


def _by_rollout(
    records: Sequence[RolloutRecord], compared: Iterable[RowMismatch]
) -> Iterator[tuple[RolloutRecord, list[RowMismatch]]]:
    """The trained records with the rows of a job that are theirs."""
    known = defaultdict[Any, deque[RowMismatch]](deque)
    for each in compared:
        known[_key(each.row)].append(each)
    for record in trained(records) if known else ():
        found = [(row, known.get(_key(row))) for row in record.rows]
        yield record, [own.popleft() if own else RowMismatch(row) for row, own in found]


def of_rollout(example: Sequence[RolloutRecord], chosen: RolloutRecord, packed: bytes | None) -> list[float | None]:
    """The differences of a rollout's tokens, empty if it has none; `example` has the rollouts of its example."""
    records = trained(example)
    found = in_rows([row for record in records for row in record.rows], packed)
    of_row = [record.generation for record in records for _ in record.rows]
    own = b"".join(row.differences for at, row in zip(of_row, found, strict=False) if at == chosen.generation)
    return [value if isfinite(value) else None for (value,) in struct.iter_unpack("<e", own)]


def trained(records: Sequence[RolloutRecord]) -> list[RolloutRecord]:
    """The trained rollouts of an example in the order of its differences."""
    return sorted((record for record in records if record.left_out is None), key=attrgetter("generation"))


def _key(row: TrainingRow) -> Any:
    """Equal for the row of a record and that of a job, which may have a teacher's log probabilities, too."""
    return tuple(row.token_ids), tuple((span.start, span.stop, tuple(span.logprobs or ())) for span in row.spans)

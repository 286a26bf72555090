"""Pack rows into micro-batches and deal groups out to optimizer steps.

Neither changes the gradient: rows never see each other, and the weight of a token is fixed before packing.
"""

from collections.abc import Sequence
from random import Random

from nat.backend.training.batch import Row


def pack(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Fill micro-batches of at most `max_tokens` input tokens; a longer row gets one of its own.

    Rows are taken longest first, so that neighbours have similar lengths (attention pads to the longest
    neighbour) and the peak of memory comes first.
    """
    micro_batches: list[list[Row]] = []
    room = 0
    for row in sorted(rows, key=lambda row: (-len(row.input_ids), row.index)):
        size = len(row.input_ids)
        if size > room or not micro_batches:
            micro_batches.append([])
            room = max_tokens
        micro_batches[-1].append(row)
        room -= size
    return micro_batches


def deal(rows: Sequence[Row], *, passes: int, steps_per_pass: int, seed: int) -> list[list[Row]]:
    """Give the rows of each optimizer step: in every pass the groups are shuffled and dealt out evenly.

    With fewer groups than steps there are as many steps as groups, because a step without rows has no gradient.
    """
    groups = sorted({row.group for row in rows})
    steps: list[list[Row]] = []
    for number in range(passes):
        order = list(groups)
        if steps_per_pass > 1:
            Random(f"{seed}/{number}").shuffle(order)  # noqa: S311 - an order, not a secret
        count = min(steps_per_pass, len(order))
        hands = [set(order[start::count]) for start in range(count)]
        steps.extend([row for row in rows if row.group in hand] for hand in hands)
    return steps

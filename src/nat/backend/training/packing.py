"""Deal a batch out to optimizer steps, and pack the rows of a step into micro-batches.

Packing never changes the gradient: rows do not see each other, what they share gets the gradients of all, and the
weight of a token is fixed before it.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random

import numpy as np

from nat.backend.training.batch import Row
from nat.backend.tree_attention import common_prefix
from nat.wire.training import TrainingConfig


def pack(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Fill micro-batches of at most `max_tokens` tokens, shared beginnings counted once; a longer row gets its own.

    Rows of a group stand together, those that begin alike side by side; the groups with the longest rows come first,
    and with them the peak of memory.
    """
    longest: dict[int, int] = {}
    for row in rows:
        longest[row.group] = max(longest.get(row.group, 0), len(row.input_ids))
    micro_batches: list[list[Row]] = []
    room, previous = 0, np.empty(0, dtype=np.int64)
    for row in sorted(rows, key=lambda row: (-longest[row.group], row.group, row.input_ids, row.index)):
        ids = np.array(row.input_ids, dtype=np.int64)
        size = len(ids) - common_prefix(previous, ids)
        if size > room or not micro_batches:
            micro_batches.append([])
            room, size = max_tokens, len(ids)
        micro_batches[-1].append(row)
        room -= size
        previous = ids
    return micro_batches


def deal(rows: Sequence[Row], config: TrainingConfig, step: int = 0) -> list[list[Row]]:
    """Give the rows of each optimizer step: in every pass of every update all of them, in an order of its own.

    Groups are shuffled and dealt out evenly to `steps_per_batch` steps, or to as many steps as there are groups if
    those are fewer, because a step without rows has no gradient. With `tokens_per_step` steps are filled one after
    another with whole rollouts, those of a group side by side; a longer rollout gets a step of its own. The prompt
    that a group shares counts once in a step, so that many short answers to a long prompt are compared in one step.

    `step` counts the optimizer steps before this update, so that an update after a restart is dealt out as without it.
    """
    steps: list[list[Row]] = []
    for number in range(config.num_iterations):
        random = Random(f"{config.seed}/{step}/{number}")  # noqa: S311 - an order, not a secret
        if config.tokens_per_step is not None:
            steps += _fill(rows, config.tokens_per_step, random)
        else:
            steps += _split(rows, config.steps_per_batch, random)
    return steps


def _split(rows: Sequence[Row], num_steps: int, random: Random) -> list[list[Row]]:
    order = sorted({row.group for row in rows})
    if num_steps > 1:
        random.shuffle(order)
    count = min(num_steps, len(order))
    hands = [set(order[start::count]) for start in range(count)]
    return [[row for row in rows if row.group in hand] for hand in hands]


def _fill(rows: Sequence[Row], max_tokens: int, random: Random) -> list[list[Row]]:
    groups = _by(rows, attrgetter("group"))
    steps: list[list[Row]] = []
    room = 0
    for group in random.sample(sorted(groups), len(groups)):
        shared = shared_prefix(groups[group])
        rollouts = _by(groups[group], attrgetter("rollout"))
        for rollout in random.sample(sorted(rollouts), len(rollouts)):
            own = rollouts[rollout]
            size = sum(row.num_tokens - shared for row in own)
            begins = not steps or steps[-1][-1].group != group
            if not steps or size + begins * shared > room:
                steps.append([])
                room, begins = max_tokens, True
            steps[-1] += own
            room -= size + begins * shared
    return steps


def shared_prefix(rows: Sequence[Row]) -> int:
    """Number of tokens with which all rows begin, without the last one before the first that was sampled.

    The loss reads that one's output, so each row keeps it for itself.
    """
    end = min(row.positions[0] for row in rows)
    first = rows[0].input_ids
    return next((i for i in range(end) if any(row.input_ids[i] != first[i] for row in rows)), end)


def _by(rows: Sequence[Row], key: Callable[[Row], int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found

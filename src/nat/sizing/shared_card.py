"""What a learner leaves of a card to vLLM, which samples there beside it."""

from math import floor

from nat.sizing.memory import OPTIMIZER, PROCESS, WEIGHTS, Setup, Workload, predict
from nat.sizing.shape import ModelShape

MOST = 0.9
"""Share that vLLM takes of a card that is its own."""
ROW_TOKENS = 4096
"""Tokens of the longest rows that the learner keeps memory for: those of a usual micro-batch."""


def vllm_share(shape: ModelShape, setup: Setup, *, context: int, sleeps: bool, total: int, free: int) -> float:
    """Share of all `total` bytes for vLLM, in hundredths; `free` are those that the loaded learner leaves now.

    A vLLM that sleeps during updates leaves the learner all it needs then, so only what the learner keeps counts.
    """
    row = min(context, ROW_TOKENS)
    needed = predict(shape, setup, Workload(1, row, row, step_tokens=row), free=total)
    kept = (WEIGHTS, OPTIMIZER, PROCESS)
    learner = sum(needed.parts.get(name, 0) for name in kept) if sleeps else needed.total
    return min(MOST, max(0, floor(100 * min(total - learner, free) / total) / 100))

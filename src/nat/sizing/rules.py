"""The sizes that sampler and learner choose: the backend obeys them, and predictions of memory use them."""

MICRO_BATCH_VALUES = 2**21
"""Values of the largest activation of a micro-batch on a CPU. Larger ones are slower in float32, and take more memory;
the C library returns those of more than 32 MB to the system, which clears their pages."""
FEWEST_MICRO_BATCH_TOKENS = 512

CHECKPOINTED_SHARE = 0.4
"""Share of the free memory that `gradient_checkpointing: auto` lets activations take. On a CPU the process needs up to
2.2 times their bytes for them, because of the holes in its heap; gradients and AdamW need some, too."""

MAX_LOGITS = 2**24
"""Logits in memory at a time in training: 64 MB in fp32."""
CACHED_LOGITS = 2**20
"""The same on a CPU, whose caches hold them; larger blocks take their memory anew from the system each time."""
NARROWEST_BLOCK = 256
"""Tokens of a block of the vocabulary; products with fewer are slow."""

STEP_TOKENS = 256, 4096
"""Fewest and most tokens of a sampling step, where the model chooses."""
STEP_VALUES = 2**22
"""Values of the largest activation of a sampling step on a CPU: the C library gets each of more than 32 MB anew from
the system, and the system clears its pages."""
FREE_SHARES = 4, 16
"""Running sequences may take a quarter of the free memory, the prefix cache a sixteenth; several models may be served,
and the learner needs the rest."""

ROLLOUTS_PER_STEP = 32
"""Rollouts of an optimizer step, unless the user says how many steps a batch has."""
MOST_STEPS = 16

SMALLEST_PACKED = 2**14
"""Weights in a layer; the sampler reorders no smaller one, which would gain nothing."""


def micro_batch_tokens(width: int, *, cpu: bool) -> int | None:
    """Tokens of a micro-batch with which a CPU trains fastest, for a model whose widest activation has this width.

    None elsewhere, where more are faster.
    """
    return max(FEWEST_MICRO_BATCH_TOKENS, MICRO_BATCH_VALUES // width) if cpu else None


def sampling_step_tokens(width: int, *, cpu: bool) -> int:
    """Most tokens of a sampling step; on a CPU so many that the widest activations are reused from step to step."""
    least, most = STEP_TOKENS
    return min(most, max(least, STEP_VALUES // width)) if cpu else most


def logits_at_a_time(num_tokens: int, *, cpu: bool) -> int:
    """Most logits in memory when so many tokens are scored."""
    return max(CACHED_LOGITS, NARROWEST_BLOCK * num_tokens) if cpu else MAX_LOGITS


def usual_optimizer_steps(num_rollouts: int) -> int:
    """Optimizer steps of a pass over so many rollouts, unless the user sets them."""
    return min(MOST_STEPS, max(1, num_rollouts // ROLLOUTS_PER_STEP))

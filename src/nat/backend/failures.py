"""Explain an unexpected error of the backend: out of memory, the file system, or a bug."""

from typing import NamedTuple

import torch

from nat.errors import describe_error
from nat.files import storage_failure

_OUT_OF_MEMORY = ("not enough memory", "can't allocate memory", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Texts of torch's errors that have no class of their own."""


class Failure(NamedTuple):
    """What failed, and what to do about it."""

    message: str
    hint: str


def explained(error: BaseException) -> Failure:
    """The error's message, with the remedy that fits it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)
    ):
        return Failure(
            f"out of memory: {describe_error(error)}",
            "lower micro_batch_tokens, max_seq_length, max_num_seqs, kv_cache_mb or prefix_cache_mb, set "
            "gradient_checkpointing: true, or train with lora",
        )
    if (failure := storage_failure(error)) is not None:
        return Failure(failure.message, failure.hint)
    return Failure(describe_error(error), "the backend's log has the traceback")

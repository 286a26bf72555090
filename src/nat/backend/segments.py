"""Attention of packed rows without padding or masks, by FlashAttention's kernel for rows of different lengths on CUDA.

The batch says which queries read which keys; `flash` passes that to torch's kernel. Batches that do not say it, and
devices without the kernel, use padded attention (attention.py).

Shapes: T packed tokens, K keys of all segments, N segments, H query heads, G key/value heads, D head size.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Parts of a batch that attend independently; each one's queries are the last tokens of its keys."""

    query_starts: Tensor
    """Start of each segment's queries among the packed tokens, then the end of the last one: int32 [N + 1]."""
    key_starts: Tensor
    """Likewise for keys."""
    most_queries: int
    most_keys: int
    keys_K: Tensor | None
    """Packed index of each key; None if queries and keys are the same tokens."""

    @classmethod
    def of(cls, paths: Sequence[NDArray[np.int64]], sizes: Sequence[int], device: torch.device) -> "Segments":
        """Give each segment's keys, and how many of the last ones are its queries; queries are packed in this order."""
        lengths = [len(path) for path in paths]
        whole = list(sizes) == lengths
        return cls(
            query_starts=_starts(sizes, device),
            key_starts=_starts(lengths, device),
            most_queries=max(sizes),
            most_keys=max(lengths),
            keys_K=None if whole else torch.from_numpy(np.concatenate(paths)).to(device),
        )


def _starts(lengths: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)


class Segmented(ABC):
    """A batch without a cache whose attention can be computed in segments."""

    @property
    @abstractmethod
    def segments(self) -> Segments:
        """The same in every layer."""


def flash(
    segments: Segments,
    query_HTD: Tensor,
    key_GTD: Tensor,
    value_GTD: Tensor,
    *,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """Causal attention [T, H, D] by FlashAttention as torch has it, on CUDA, in bf16 or fp16.

    The last query of each segment sees all its keys, the one before all but the last, …; with a `window`, its own key
    and that many minus one before.

    Raises:
        ImportError: this torch has none.
        RuntimeError: the kernel does not take this device, precision or head size.

    """
    from torch.nn.attention.varlen import varlen_attn  # older releases of torch do not have it

    query, key, value = (x.transpose(0, 1) for x in (query_HTD, key_GTD, value_GTD))
    if segments.keys_K is not None:
        key, value = key.index_select(0, segments.keys_K), value.index_select(0, segments.keys_K)
    # Before torch 2.12 fewer key heads than query heads need not be announced.
    announced: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
    out = varlen_attn(
        query,
        key,
        value,
        segments.query_starts,
        segments.key_starts,
        segments.most_queries,
        segments.most_keys,
        scale=scale,
        window_size=(-1 if window is None else window - 1, 0),
        **announced,
    )
    assert isinstance(out, Tensor), "without return_aux, there is nothing else"
    return out

"""Attention of new tokens over longer lists of keys, for several sequences at once.

Queries are padded to the longest of their bucket, and so are the keys; a mask hides the rest.

Shapes: T packed tokens, N sequences, Q cells of one's padded queries, L of its padded keys, H query heads, G key/value
heads, D head size.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from torch import Tensor

_SMALLEST_BUCKET = 16


def similar(sizes: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Number what is within a factor of two of each other in both sizes, so that padding stays bounded."""
    found: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, pair in enumerate(sizes):
        found[tuple((max(size, _SMALLEST_BUCKET) - 1).bit_length() for size in pair)].append(number)
    return [found[key] for key in sorted(found)]


class PaddedQueries:
    """Consecutive tokens of some sequences, where each sees what its sequence has up to itself."""

    def __init__(self, tokens: NDArray[np.int64], spans: Sequence[tuple[int, int]], device: torch.device | str) -> None:
        """`tokens` are packed indices, one sequence after another; a span says at which positions they stand."""
        sizes = [end - start for start, end in spans]
        cells = np.concatenate([number * max(sizes) + np.arange(size) for number, size in enumerate(sizes)])
        positions = np.zeros((len(spans), max(sizes)), dtype=np.int64)
        for number, (start, end) in enumerate(spans):
            positions[number, : end - start] = np.arange(start, end)
        self.tokens, self._cells, self._positions_NQ = (
            torch.from_numpy(table).to(device) for table in (tokens, cells, positions)
        )
        self._masks: dict[tuple[int, int | None], Tensor] = {}

    def attend(
        self, query_THD: Tensor, keys_NGLD: Tensor, values_NGLD: Tensor, *, scale: float | None, window: int | None
    ) -> Tensor:
        """Attention output of the tokens, in their order; `query_THD` holds all packed tokens."""
        pieces, cells = self._positions_NQ.shape
        own = query_THD.index_select(0, self.tokens)
        padded = own.new_zeros(pieces * cells, *own.shape[1:]).index_copy(0, self._cells, own)
        out_NHQD = F.scaled_dot_product_attention(
            padded.reshape(pieces, cells, *own.shape[1:]).transpose(1, 2),
            keys_NGLD,
            values_NGLD,
            attn_mask=self._mask(keys_NGLD.shape[2], window),
            scale=scale,
            enable_gqa=query_THD.shape[1] != keys_NGLD.shape[1],
        )
        out = out_NHQD.transpose(1, 2).reshape(pieces * cells, query_THD.shape[1], -1)
        return out.index_select(0, self._cells)

    def _mask(self, length: int, window: int | None) -> Tensor:
        """Which keys a query sees [N, 1, Q, L]; the same in every layer of a kind."""
        if (length, window) not in self._masks:
            key_L = torch.arange(length, device=self._positions_NQ.device)
            query_NQ1 = self._positions_NQ.unsqueeze(-1)
            seen = key_L <= query_NQ1
            if window is not None:
                seen &= key_L > query_NQ1 - window
            self._masks[length, window] = seen.unsqueeze(1)
        return self._masks[length, window]

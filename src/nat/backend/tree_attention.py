"""Tree attention: rows with common prefixes, packed so that a shared prefix is computed once, forward and backward.

When rows are sorted, each one differs from its predecessor in its last part, its *piece*; the tokens before it belong
to pieces of earlier rows. Linear layers compute the pieces; attention looks up a piece's keys and values along its
row's path. A shared token is computed once, so the gradients of all its rows add up, wherever the rows diverge.

Shapes: T packed tokens, N pieces of a bucket, L longest path, H query heads, G key/value heads, D head size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nat.backend.attention import PackedRows, PaddedQueries, Window, similar
from nat.backend.segments import Segmented, Segments

Ids = NDArray[np.int64]


def common_prefix(one: Ids, other: Ids) -> int:
    """Length of the common prefix."""
    length = min(len(one), len(other))
    (differing,) = np.nonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def unique_tokens(rows: Sequence[list[int]]) -> int:
    """Tokens of all rows; shared prefixes count once."""
    ordered = [np.array(row, dtype=np.int64) for row in sorted(rows)]
    return sum(map(len, ordered)) - sum(common_prefix(one, other) for one, other in pairwise(ordered))


@dataclass(frozen=True)
class _Piece:
    """The part of a row that no earlier row has."""

    start: int
    """Number of the row's tokens before it."""
    path: Ids
    """Packed index of each token of the whole row."""


@dataclass(frozen=True)
class _Bucket:
    """Pieces of similar size."""

    queries: PaddedQueries
    keys_NL: Tensor
    """Packed index of each key; the values after a path's end are masked."""

    @classmethod
    def of(cls, pieces: Sequence[_Piece], device: torch.device | str) -> "_Bucket":
        keys = np.zeros((len(pieces), max(len(piece.path) for piece in pieces)), dtype=np.int64)
        for number, piece in enumerate(pieces):
            keys[number, : len(piece.path)] = piece.path
        tokens = np.concatenate([piece.path[piece.start :] for piece in pieces])
        spans = [(piece.start, len(piece.path)) for piece in pieces]
        return cls(PaddedQueries(tokens, spans, device), torch.from_numpy(keys).to(device))

    def along(self, x_TGD: Tensor) -> Tensor:
        """Keys or values along each piece's path [N, G, L, D]."""
        found = x_TGD.index_select(0, self.keys_NL.flatten())
        return found.reshape(*self.keys_NL.shape, *x_TGD.shape[1:]).transpose(1, 2)


class PackedTree(Segmented):
    """A `PackedBatch` of causal rows without a cache; shared prefixes are included once."""

    def __init__(self, rows: Sequence[list[int]], device: torch.device | str = "cpu") -> None:
        if not rows or not all(rows):
            raise ValueError(f"each packed row needs at least one token; the lengths are {[len(row) for row in rows]}")
        arrays = [np.array(row, dtype=np.int64) for row in rows]
        pieces = dict(_pieces(rows, arrays))
        self.paths = [pieces[number].path for number in range(len(rows))]
        """For each row, in the order given, the packed index of each of its tokens."""
        total = 1 + max(int(path.max()) for path in self.paths)
        tokens, positions = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
        for array, path in zip(arrays, self.paths, strict=True):
            tokens[path], positions[path] = array, np.arange(len(array))
        self.token_ids_T = torch.from_numpy(tokens).to(device)
        self.position_ids_T = torch.from_numpy(positions).to(device)
        self._pieces = [piece for piece in pieces.values() if piece.start < len(piece.path)]
        roots = [piece for piece in pieces.values() if piece.start == 0]
        branches = [piece for piece in pieces.values() if 0 < piece.start < len(piece.path)]
        at = torch.from_numpy(np.concatenate([piece.path for piece in roots])).to(device)
        self._roots = PackedRows(self.token_ids_T[at], [len(piece.path) for piece in roots])
        self._root_tokens = at if branches else None
        sizes = [(len(piece.path) - piece.start, len(piece.path)) for piece in branches]
        self._buckets = [_Bucket.of([branches[i] for i in alike], device) for alike in similar(sizes)]

    @cached_property
    def segments(self) -> Segments:
        sizes = [len(piece.path) - piece.start for piece in self._pieces]
        return Segments.of([piece.path for piece in self._pieces], sizes, self.token_ids_T.device)

    def attend(
        self, layer: int, query_HTD: Tensor, key_GTD: Tensor, value_GTD: Tensor, *, scale: float | None, window: Window
    ) -> Tensor:
        """Causal attention along each row's path; the same in every layer."""
        if self._root_tokens is None:
            return self._roots.attend(layer, query_HTD, key_GTD, value_GTD, scale=scale, window=window)
        at = self._root_tokens
        parts = (x.index_select(1, at) for x in (query_HTD, key_GTD, value_GTD))
        query, key, value = (x.transpose(0, 1) for x in (query_HTD, key_GTD, value_GTD))
        out = query.new_zeros(query.shape[0], query.shape[1], value.shape[2])
        out = out.index_copy(0, at, self._roots.attend(layer, *parts, scale=scale, window=window))
        for bucket in self._buckets:
            queries = bucket.queries
            part = queries.attend(query, bucket.along(key), bucket.along(value), scale=scale, window=window)
            out = out.index_copy(0, queries.tokens, part)
        return out

    def row_by_row(self, decoder: nn.Module) -> Tensor:
        """Hidden states of all tokens, each row computed alone, shared prefixes for every row again.

        A shared token is the same in each of its rows, and so is its gradient: it is taken from the longest of them.
        """
        parts, computed, ends = list[Tensor](), list[Ids](), set[int]()
        device = self.token_ids_T.device
        for path in sorted(self.paths, key=len, reverse=True):
            if int(path[-1]) not in ends:  # else the row is the beginning of another
                ids_1L = self.token_ids_T[torch.from_numpy(path).to(device)].unsqueeze(0)
                parts.append(decoder(input_ids=ids_1L, use_cache=False).last_hidden_state[0])
                computed.append(path)
                ends.update(path.tolist())
        _, first = np.unique(np.concatenate(computed), return_index=True)
        return torch.cat(parts).index_select(0, torch.from_numpy(first).to(device))

    @property
    def num_row_tokens(self) -> int:
        """Tokens of all rows, shared ones counted for each."""
        return sum(map(len, self.paths))


def _pieces(rows: Sequence[list[int]], arrays: Sequence[Ids]) -> Iterator[tuple[int, _Piece]]:
    """Each row's number and piece; a row that is a prefix of another, or equal to it, may have an empty one."""
    previous = path = np.empty(0, dtype=np.int64)
    total = 0
    for number in sorted(range(len(rows)), key=rows.__getitem__):
        shared = common_prefix(previous, arrays[number])
        new = len(arrays[number]) - shared
        path = np.concatenate([path[:shared], np.arange(total, total + new)])
        yield number, _Piece(shared, path)
        total += new
        previous = arrays[number]

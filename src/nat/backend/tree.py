"""Rows that begin alike, packed so that what they share is computed once, forward and backward.

Sorted, each row differs from the one before it in a last part alone, its *piece*; the tokens before belong to pieces of
earlier rows. Linear layers see the pieces; attention looks a piece's keys and values up along its row's path. Since a
shared token is one token, gradients of all rows add up in it, also where rows part in the middle of a prompt or of
an answer.

Shapes: T packed tokens, N pieces of a bucket, L longest path, H query heads, G key/value heads, D head size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nat.backend.attention import PackedRows
from nat.backend.padded import PaddedQueries, similar

Ids = NDArray[np.int64]


def common_prefix(one: Ids, other: Ids) -> int:
    """Number of tokens with which both begin."""
    length = min(len(one), len(other))
    (differing,) = np.nonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def unique_tokens(rows: Sequence[list[int]]) -> int:
    """Tokens of all rows, those that rows share as a beginning counted once."""
    ordered = [np.array(row, dtype=np.int64) for row in sorted(rows)]
    return sum(map(len, ordered)) - sum(common_prefix(one, other) for one, other in pairwise(ordered))


@dataclass(frozen=True)
class _Piece:
    """The part of a row that no earlier one has."""

    start: int
    """Tokens of the row before it."""
    path: Ids
    """Packed index of each token of the row, those before the piece included."""


@dataclass(frozen=True)
class _Bucket:
    """Pieces of similar size."""

    queries: PaddedQueries
    keys_NL: Tensor
    """Packed index of each key; anything after a path's end, where nothing looks."""

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


class PackedTree:
    """Causal rows in one packed row of tokens, without a cache; equal beginnings are there once."""

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
        roots = [piece for piece in pieces.values() if piece.start == 0]
        branches = [piece for piece in pieces.values() if 0 < piece.start < len(piece.path)]
        at = torch.from_numpy(np.concatenate([piece.path for piece in roots])).to(device)
        self._roots = PackedRows(self.token_ids_T[at], [len(piece.path) for piece in roots])
        self._root_tokens = at if branches else None
        self._buckets = [_Bucket.of([branches[i] for i in alike], device) for alike in similar(map(_sizes, branches))]

    def attend(
        self,
        layer: int,
        query_HTD: Tensor,
        key_GTD: Tensor,
        value_GTD: Tensor,
        *,
        scale: float | None,
        window: int | None,
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


def _pieces(rows: Sequence[list[int]], arrays: Sequence[Ids]) -> Iterator[tuple[int, _Piece]]:
    """Each row's number and piece; a row that is the beginning of another, or equal to it, may have an empty one."""
    previous = path = np.empty(0, dtype=np.int64)
    total = 0
    for number in sorted(range(len(rows)), key=rows.__getitem__):
        shared = common_prefix(previous, arrays[number])
        new = len(arrays[number]) - shared
        path = np.concatenate([path[:shared], np.arange(total, total + new)])
        yield number, _Piece(shared, path)
        total += new
        previous = arrays[number]


def _sizes(piece: _Piece) -> tuple[int, int]:
    """Of the piece, and of its row up to its end."""
    return len(piece.path) - piece.start, len(piece.path)

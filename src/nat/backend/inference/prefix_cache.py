"""Keys and values of earlier prompts and answers, for reuse by prompts with the same beginning.

A radix tree over token ids: a node holds a run of tokens and the cells of a pool with their keys and values. So a
conversation's next turn, and the other generations of an example, compute only their new tokens. The pool is bounded;
when it is full, the least recently used leaves are evicted first.

Shapes: C cells, S slots, L positions, G key/value heads, D head size.
"""

import heapq
import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from nat.backend.inference.kv_cache import SlotCache
from nat.backend.tree_attention import Ids, common_prefix

_FIRST_CELLS = 1024
_NOTHING = np.empty(0, dtype=np.int64)


class _Node:
    """A run of tokens after those of its parent."""

    def __init__(self, tokens: Ids, cells: Ids, parent: "_Node | None") -> None:
        self.tokens = tokens
        self.cells = cells
        self.parent = parent
        self.children: dict[int, _Node] = {}
        self.used = 0

    def split(self, length: int) -> "_Node":
        """Cut the run in two; return the first part, whose child this node becomes."""
        assert self.parent is not None, "the root has no tokens"
        first = _Node(self.tokens[:length], self.cells[:length], self.parent)
        first.used = self.used
        self.parent.children[int(first.tokens[0])] = first
        self.tokens, self.cells, self.parent = self.tokens[length:], self.cells[length:], first
        first.children[int(self.tokens[0])] = self
        return first


class PrefixCache:
    """The prefix cache of one set of weights; `clear` it when they change."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pool: dict[int, tuple[Tensor, Tensor]] = {}
        self._free: list[int] = []
        self._num_cells = 0
        self._clock = itertools.count(1)
        self._root = _Node(_NOTHING, _NOTHING, None)

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values are cached."""
        return self._num_cells - len(self._free)

    def clear(self) -> None:
        """Drop everything and free the memory."""
        self.__init__(self._max_bytes)  # type: ignore[misc]  # resets all fields

    def find(self, token_ids: Ids) -> Ids:
        """Cells of the longest cached prefix."""
        path = self._walk(token_ids)
        return np.concatenate([_NOTHING, *(node.cells[:length] for node, length in path)])

    def load(self, cells: Ids, cache: SlotCache, slot: int) -> None:
        """Copy these cells to the beginning of a slot."""
        index = torch.from_numpy(cells)
        for layer, (keys, values) in cache.layers():
            pool_keys, pool_values = self._pool[layer]
            keys[slot, :, : len(cells)] = pool_keys[index.to(keys.device)].transpose(0, 1)
            values[slot, :, : len(cells)] = pool_values[index.to(values.device)].transpose(0, 1)

    def keep(self, token_ids: Ids, cache: SlotCache, slot: int) -> None:
        """Copy the new part of a slot's beginning into the pool, as much as there is room for."""
        path = self._walk(token_ids)
        known = sum(length for _, length in path)
        if known == len(token_ids):
            return
        last, length = path[-1] if path else (self._root, 0)
        parent = last if length == len(last.tokens) else last.split(length)
        cells = self._take(len(token_ids) - known, cache, spare=parent)
        if not len(cells):
            return
        end = known + len(cells)
        node = _Node(token_ids[known:end], cells, parent)
        node.used = next(self._clock)
        parent.children[int(token_ids[known])] = node
        index = torch.from_numpy(cells)
        for layer, (keys, values) in cache.layers():
            pool_keys, pool_values = self._pool[layer]
            pool_keys[index.to(keys.device)] = keys[slot, :, known:end].transpose(0, 1)
            pool_values[index.to(values.device)] = values[slot, :, known:end].transpose(0, 1)

    def _walk(self, token_ids: Ids) -> list[tuple[_Node, int]]:
        """The nodes of the longest cached prefix, each with how many of its tokens match; marks them as used."""
        path, node, at, now = [], self._root, 0, next(self._clock)
        while at < len(token_ids):
            child = node.children.get(int(token_ids[at]))
            if child is None:
                break
            length = common_prefix(child.tokens, token_ids[at:])
            child.used = now
            path.append((child, length))
            at += length
            if length < len(child.tokens):
                break
            node = child
        return path

    def _take(self, wanted: int, cache: SlotCache, *, spare: _Node) -> Ids:
        """Take at most `wanted` free cells; `spare` and its ancestors are not evicted for them."""
        if wanted > len(self._free):
            self._grow(wanted - len(self._free), cache)
        if wanted > len(self._free):
            self._evict(wanted - len(self._free), spare)
        taken = self._free[len(self._free) - min(wanted, len(self._free)) :]
        del self._free[len(self._free) - len(taken) :]
        return np.array(taken, dtype=np.int64)

    def _grow(self, wanted: int, cache: SlotCache) -> None:
        """Enlarge the pool by doubling, up to its bound."""
        token_bytes = sum(
            tensor[0, :, 0].numel() * tensor.element_size() for _, pair in cache.layers() for tensor in pair
        )
        most = self._max_bytes // token_bytes
        size = min(most, max(2 * self._num_cells, self._num_cells + wanted, _FIRST_CELLS))
        if size <= self._num_cells:
            return
        for layer, pair in cache.layers():
            old = self._pool.get(layer)
            self._pool[layer] = tuple(  # type: ignore[assignment]  # a pair, as the one that comes in
                _enlarged(None if old is None else old[side], tensor, size) for side, tensor in enumerate(pair)
            )
        self._free = [*reversed(range(self._num_cells, size)), *self._free]
        self._num_cells = size

    def _evict(self, wanted: int, spare: _Node) -> None:
        """Evict the least recently used leaves, at least an eighth of the pool."""
        kept = {id(node) for node in _ancestors(spare)}
        leaves = [(node.used, id(node), node) for node in self._leaves() if id(node) not in kept]
        heapq.heapify(leaves)
        goal = len(self._free) + max(wanted, self._num_cells // 8)
        while leaves and len(self._free) < goal:
            _, _, node = heapq.heappop(leaves)
            self._free.extend(node.cells.tolist())
            parent = node.parent
            assert parent is not None, "the root is never evicted"
            del parent.children[int(node.tokens[0])]
            if not parent.children and parent is not self._root and id(parent) not in kept:
                heapq.heappush(leaves, (parent.used, id(parent), parent))

    def _leaves(self) -> Iterator[_Node]:
        nodes = [*self._root.children.values()]
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children.values())
            if not node.children:
                yield node


def _ancestors(node: _Node | None) -> Iterator[_Node]:
    """The node and its ancestors."""
    while node is not None:
        yield node
        node = node.parent


def _enlarged(old: Tensor | None, like_SGLD: Tensor, size: int) -> Tensor:
    """A pool [C, G, D] of that size, with the content of the old one."""
    _, heads, _, width = like_SGLD.shape
    new = like_SGLD.new_zeros(size, heads, width)
    if old is not None:
        new[: len(old)] = old
    return new

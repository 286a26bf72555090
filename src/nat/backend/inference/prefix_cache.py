"""Keys and values of prompts and answers, shared by running sequences and by later ones with the same beginning.

A radix tree over token ids: a node holds a run of tokens with their keys and values, in tensors of exactly that size.
A running sequence uses the nodes from the root to its own last one, which are not evicted meanwhile. So a
conversation's next turn, and the other generations of an example, compute only their new tokens. Nodes that nobody uses
are bounded: the least recently used leaves are evicted first.

Shapes: N tokens of a run, G key/value heads, D head size.
"""

import heapq
import itertools
import logging
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from nat.backend.inference.kv_cache import SlotCache
from nat.backend.tree_attention import Ids, common_prefix

logger = logging.getLogger(__name__)

KeyValues = dict[int, tuple[Tensor, Tensor]]
"""Keys and values [G, N, D] of a run of tokens, by layer."""
_NOTHING = np.empty(0, dtype=np.int64)
_LEAST_EVICTED = 1 / 8
"""Share of the bound that an eviction frees at least, so that the next one is not needed soon."""


class Node:
    """A run of tokens after those of its parent."""

    def __init__(self, tokens: Ids, layers: KeyValues, parent: "Node | None") -> None:
        self.tokens = tokens
        self.layers = layers
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.users = 0
        """Running sequences whose last node this is."""
        self.used = 0
        """When it was last found or used, by the cache's clock."""

    @property
    def path(self) -> list["Node"]:
        """The nodes from the root's child to this one; none for the root."""
        nodes = list(itertools.takewhile(lambda node: node.parent is not None, _ancestors(self)))
        return nodes[::-1]

    @property
    def end(self) -> int:
        """Number of tokens from the root to the end of this run."""
        return sum(len(node.tokens) for node in _ancestors(self))

    def split(self, length: int) -> "Node":
        """Cut the run in two; return the first part, whose child this node becomes."""
        assert self.parent is not None, "the root has no tokens"
        first = Node(self.tokens[:length], _part(self.layers, 0, length), self.parent)
        first.used = self.used
        self.parent.children[int(first.tokens[0])] = first
        self.layers = _part(self.layers, length, len(self.tokens))
        self.tokens, self.parent = self.tokens[length:], first
        first.children[int(self.tokens[0])] = self
        return first

    def absorb_parent(self) -> None:
        """Become one node with the parent, which has no other child and no user."""
        parent = self.parent
        assert parent is not None, "the root has no parent"
        assert parent.parent is not None, "the root has no tokens"
        self.tokens = np.concatenate([parent.tokens, self.tokens])
        self.layers = {
            layer: (torch.cat([parent.layers[layer][0], keys], dim=1), torch.cat([parent.layers[layer][1], values], 1))
            for layer, (keys, values) in self.layers.items()
        }
        self.parent = parent.parent
        self.parent.children[int(self.tokens[0])] = self


class PrefixCache:
    """The prefix cache of one set of weights; `clear` it when they change."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` bounds what no running sequence uses; what they use is kept in any case."""
        self._max_bytes = max_bytes
        self._token_bytes = 0
        self._clock = itertools.count(1)
        self.root = Node(_NOTHING, {}, None)
        self.num_tokens = 0
        """Tokens whose keys and values are cached."""
        self.num_evicted = 0
        """Tokens that were evicted since the last `clear`."""

    @property
    def num_bytes(self) -> int:
        return self.num_tokens * self._token_bytes

    def clear(self) -> None:
        """Drop everything and free the memory; no sequence may be using it."""
        if self.num_evicted:
            logger.info(
                "the prefix cache of %d MB was full: %d tokens were evicted, and prompts that begin with them are "
                "computed again; more memory is given with --prefix_cache_mb",
                self._max_bytes // 2**20,
                self.num_evicted,
            )
        self.__init__(self._max_bytes)  # type: ignore[misc]  # resets all fields

    def find(self, token_ids: Ids) -> int:
        """Length of the longest cached prefix."""
        return sum(length for _, length in self._walk(token_ids))

    def load(self, token_ids: Ids, cache: SlotCache, slot: int, after: Node | None = None) -> None:
        """Copy the longest cached prefix, or what follows a node, to the beginning of a slot."""
        at = 0
        for node, length in self._walk(token_ids, after):
            for layer, (keys, values) in node.layers.items():
                slot_keys, slot_values = cache.layer(layer, keys, values)
                slot_keys[slot, :, at : at + length] = keys[:, :length]
                slot_values[slot, :, at : at + length] = values[:, :length]
            at += length

    def keep(self, token_ids: Ids, cache: SlotCache, slot: int) -> None:
        """Copy what is new of a sequence that begins in a slot; of a longer one than there is room for, the start."""
        if self._token_bytes:
            token_ids = token_ids[: self._max_bytes // self._token_bytes]
        known = self.find(token_ids)
        if known < len(token_ids):
            self._attach(self._end_of(token_ids[:known]), token_ids[known:], cache.part(slot, known, len(token_ids)))
            self._evict()

    def enter(self, token_ids: Ids) -> Node:
        """Use the longest cached prefix: the last node of it, until `leave` or `extend`."""
        node = self._end_of(token_ids)
        node.users += 1
        return node

    def extend(self, node: Node, token_ids: Ids, layers: KeyValues) -> Node:
        """Append computed tokens to the path of a sequence that uses `node`; gives the node that it now uses."""
        node.users -= 1
        last = self._attach(node, token_ids, layers)
        last.users += 1
        self._evict()
        return last

    def leave(self, node: Node) -> None:
        """The sequence that used this node uses it no longer."""
        node.users -= 1
        self._evict()

    def _walk(self, token_ids: Ids, start: Node | None = None) -> list[tuple[Node, int]]:
        """The nodes of the longest cached prefix, each with how many of its tokens match; marks them as used."""
        path, node, at, now = [], start or self.root, 0, next(self._clock)
        while at < len(token_ids):
            child = node.children.get(int(token_ids[at]))
            if child is None:
                break
            length = common_prefix(child.tokens, token_ids[at : at + len(child.tokens)])
            child.used = now
            path.append((child, length))
            at += length
            if length < len(child.tokens):
                break
            node = child
        return path

    def _end_of(self, token_ids: Ids, start: Node | None = None) -> Node:
        path = self._walk(token_ids, start)
        if not path:
            return start or self.root
        node, length = path[-1]
        return node if length == len(node.tokens) else node.split(length)

    def _attach(self, parent: Node, token_ids: Ids, layers: KeyValues) -> Node:
        """Append tokens after a node, without those that are there already; gives the last node."""
        before = parent.end
        parent = self._end_of(token_ids, parent)
        known = parent.end - before
        if known == len(token_ids):
            return parent
        self._token_bytes = sum(t[:, 0].numel() * t.element_size() for pair in layers.values() for t in pair)
        node = Node(token_ids[known:], _part(layers, known, len(token_ids)) if known else layers, parent)
        node.used = next(self._clock)
        parent.children[int(node.tokens[0])] = node
        self.num_tokens += len(node.tokens)
        # A parent that is only needed with it, and not larger, becomes one with it: so a token is copied few times.
        while (above := node.parent) is not None and above.parent is not None and not above.users:
            if len(above.children) > 1 or len(above.tokens) > len(node.tokens):
                break
            node.absorb_parent()
        return node

    def _evict(self) -> None:
        if self.num_bytes <= self._max_bytes:
            return
        leaves, nodes = list[tuple[int, int, Node]](), [*self.root.children.values()]
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children.values())
            if not node.children and not node.users:
                leaves.append((node.used, id(node), node))
        heapq.heapify(leaves)
        goal = min(self._max_bytes, self.num_bytes - self._max_bytes * _LEAST_EVICTED)
        while leaves and self.num_bytes > goal:
            _, _, node = heapq.heappop(leaves)
            self.num_tokens -= len(node.tokens)
            self.num_evicted += len(node.tokens)
            parent = node.parent
            assert parent is not None, "the root is no leaf"
            del parent.children[int(node.tokens[0])]
            if not parent.children and not parent.users and parent is not self.root:
                heapq.heappush(leaves, (parent.used, id(parent), parent))


def num_tokens(nodes: Iterable[Node]) -> int:
    """Number of tokens from the root to the ends of these nodes, those of shared nodes counted once."""
    found: dict[int, int] = {}
    for last in nodes:
        for node in _ancestors(last):
            if id(node) in found:
                break
            found[id(node)] = len(node.tokens)
    return sum(found.values())


def _ancestors(node: Node | None) -> Iterator[Node]:
    while node is not None:
        yield node
        node = node.parent


def _part(layers: KeyValues, start: int, end: int) -> KeyValues:
    return {
        layer: (keys[:, start:end].clone(), values[:, start:end].clone()) for layer, (keys, values) in layers.items()
    }

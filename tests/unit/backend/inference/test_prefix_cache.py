"""Cached keys and values are found by their prefix."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.prefix_cache import KeyValues, Node, PrefixCache

HEADS, WIDTH = 2, 3
TOKEN_BYTES = 2 * HEADS * WIDTH * 4
TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=20), min_size=1, max_size=30)


def filled(cache: SlotCache, text: list[int]) -> None:
    """Fill slot 0 as a model would: each token gets a number that depends on the tokens before it."""
    cache.reserve(1, len(text))
    keys, values = cache.layer(0, torch.zeros(HEADS, 1, WIDTH), torch.zeros(HEADS, 1, WIDTH))
    for position in range(len(text)):
        number = float(hash(tuple(text[: position + 1])) % 2**20)
        keys[0, :, position], values[0, :, position] = number, -number


def ids(text: list[int]) -> np.ndarray:
    return np.array(text, dtype=np.int64)


@given(TEXTS, st.integers(0, 60))
def test_a_found_prefix_was_computed_after_the_same_tokens(texts, room):
    """In any pool, a prefix of the request within the limit is found; with enough room, the whole of it."""
    prefixes = PrefixCache(room * TOKEN_BYTES)
    kept, cache, other = [], SlotCache(), SlotCache()
    for text in texts:
        filled(cache, text)
        prefixes.keep(ids(text), cache, 0)
        kept.append(text)
        assert prefixes.num_tokens <= room
        for asked in kept:
            length = prefixes.find(ids(asked))
            assert length <= len(asked)
            filled(other, asked)
            keys, values = other.layer(0, torch.zeros(HEADS, 1, WIDTH), torch.zeros(HEADS, 1, WIDTH))
            expected = keys[0].clone(), values[0].clone()
            keys[0, :, :length] = values[0, :, :length] = 0
            prefixes.load(ids(asked), other, 0)
            assert torch.equal(keys[0], expected[0])
            assert torch.equal(values[0], expected[1])
    distinct = {tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)}
    if len(distinct) <= room:
        assert prefixes.num_tokens == len(distinct)
        assert all(prefixes.find(ids(text)) == len(text) for text in texts)


def test_the_least_recently_used_is_evicted_first():
    """New entries and recently requested ones stay."""
    prefixes, cache = PrefixCache(24 * TOKEN_BYTES), SlotCache()
    for first in range(3):
        text = [first] * 8
        filled(cache, text)
        prefixes.keep(ids(text), cache, 0)
    prefixes.find(ids([0] * 8))
    filled(cache, [3] * 8)
    prefixes.keep(ids([3] * 8), cache, 0)
    assert [prefixes.find(ids([first] * 8)) for first in range(4)] == [8, 0, 8, 8]


def test_a_cleared_cache_finds_nothing():
    """Keys of old weights must not be used with new ones."""
    prefixes, cache = PrefixCache(1000 * TOKEN_BYTES), SlotCache()
    filled(cache, [1, 2, 3])
    prefixes.keep(ids([1, 2, 3]), cache, 0)
    prefixes.clear()
    assert (prefixes.find(ids([1, 2, 3])), prefixes.num_tokens) == (0, 0)


def layers(text: list[int], start: int = 0) -> KeyValues:
    """Keys and values of the tokens from `start` on, as `filled` writes them."""
    cache = SlotCache()
    filled(cache, text)
    return cache.part(0, start, len(text))


def read(node: Node) -> list[float]:
    """The keys along a path, one number for each token."""
    return [number for each in node.path for number in each.layers[0][0][0, :, 0].tolist()]


def test_a_used_path_is_not_evicted():
    """A running sequence keeps its nodes, whatever the bound; when it leaves, they are evicted."""
    prefixes = PrefixCache(4 * TOKEN_BYTES)
    node = prefixes.extend(prefixes.enter(ids([])), ids([1, 2, 3, 4, 5, 6]), layers([1, 2, 3, 4, 5, 6]))
    assert prefixes.find(ids([1, 2, 3, 4, 5, 6])) == 6
    prefixes.leave(node)
    assert (prefixes.find(ids([1, 2, 3, 4, 5, 6])), prefixes.num_tokens, prefixes.num_evicted) == (0, 0, 6)


def test_a_path_is_read_whole_while_others_branch_off():
    """Another sequence cuts a node in two and appends to its first part; the user of the node sees no difference."""
    prefixes, text, other = PrefixCache(1000 * TOKEN_BYTES), [1, 2, 3, 4], [1, 2, 7]
    node = prefixes.extend(prefixes.enter(ids([])), ids(text), layers(text))
    before = read(node)
    branch = prefixes.enter(ids([1, 2]))
    branch = prefixes.extend(branch, ids([7]), layers(other, 2))
    assert read(node) == before
    assert read(branch) == [*before[:2], *layers(other, 2)[0][0][0, :, 0].tolist()]
    assert (node.end, branch.end, prefixes.num_tokens) == (4, 3, 5)


def test_tokens_that_two_sequences_computed_are_cached_once():
    """The second sequence continues with the nodes of the first."""
    prefixes, text = PrefixCache(1000 * TOKEN_BYTES), [1, 2, 3, 4]
    first, second = prefixes.enter(ids([])), prefixes.enter(ids([]))
    first = prefixes.extend(first, ids(text[:3]), layers(text[:3]))
    second = prefixes.extend(second, ids(text), layers(text))
    assert second.path[0] is first
    assert prefixes.num_tokens == 4


def test_a_conversation_has_few_nodes():
    """A node takes over a parent that is not larger and that nobody else needs: 64 single tokens, 7 nodes at most."""
    prefixes, text = PrefixCache(1000 * TOKEN_BYTES), list(range(64))
    node = prefixes.enter(ids([]))
    for end in range(1, 65):
        node = prefixes.extend(node, ids(text[end - 1 : end]), layers(text[:end], end - 1))
        assert len(node.path) <= 7
    assert read(node) == layers(text)[0][0][0, :, 0].tolist()

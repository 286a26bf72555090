"""Cached keys and values are found by their prefix."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.prefix_cache import KeyValues, PrefixCache

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


def test_a_used_path_is_not_evicted():
    """A running sequence keeps its nodes, whatever the bound; when it leaves, they are evicted."""
    prefixes = PrefixCache(4 * TOKEN_BYTES)
    node = prefixes.extend(prefixes.enter(ids([])), ids([1, 2, 3, 4, 5, 6]), layers([1, 2, 3, 4, 5, 6]))
    assert prefixes.find(ids([1, 2, 3, 4, 5, 6])) == 6
    prefixes.leave(node)
    assert (prefixes.find(ids([1, 2, 3, 4, 5, 6])), prefixes.num_tokens, prefixes.num_evicted) == (0, 0, 6)

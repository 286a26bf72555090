"""New tokens over the keys of their own sequences."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nat.backend.padded import PaddedQueries, similar


@pytest.mark.parametrize("window", [None, 2])
def test_each_token_sees_its_sequence_up_to_itself(window):
    """Whatever stands beside it, and in its sequence's padding; with a window only the nearest."""
    torch.manual_seed(0)
    spans, tokens = [(3, 5), (0, 4), (6, 7)], np.array([9, 8, 2, 3, 4, 5, 0])
    query = torch.randn(10, 4, 8)
    keys, values = torch.randn(3, 2, 7, 8), torch.randn(3, 2, 7, 8)
    out = PaddedQueries(tokens, spans, "cpu").attend(query, keys, values, scale=None, window=window)
    places = [(number, position) for number, span in enumerate(spans) for position in range(*span)]
    for found, token, (number, position) in zip(out, tokens, places, strict=True):
        first = 0 if window is None else max(0, position + 1 - window)
        for head in range(4):
            seen = slice(first, position + 1)
            weights = (keys[number, head // 2, seen] @ query[token, head] / 8**0.5).softmax(0)
            torch.testing.assert_close(found[head], weights @ values[number, head // 2, seen])


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=20))
def test_what_is_padded_together_is_of_similar_size(sizes):
    """Each in one bucket; in it no size above 16 is more than twice another's."""
    buckets = similar(sizes)
    assert sorted(number for bucket in buckets for number in bucket) == list(range(len(sizes)))
    for bucket in buckets:
        for side in (0, 1):
            own = [max(16, sizes[number][side]) for number in bucket]
            assert max(own) <= 2 * min(own)

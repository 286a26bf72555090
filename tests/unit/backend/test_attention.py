"""Attention of new tokens to the keys of their own sequences."""

import numpy as np
import pytest
import torch

from fakes.tiny_fixtures import mostly_slow
from fakes.tiny_model import CONFIGS
from nat.backend.attention import (
    PackedRows,
    PaddedQueries,
    packed_logits,
)
from nat.backend.model_loader import load_model

LENGTHS = (3, 70, 20, 130, 1)


def random_rows(lengths=LENGTHS, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 250, (n,), generator=generator).tolist() for n in lengths]


def plain_logits(model, row):
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([row]), use_cache=False).logits[0]
    model.set_attn_implementation("nat_packed")
    return logits


@pytest.mark.parametrize("kind", mostly_slow(CONFIGS, "qwen2", "gemma3"))
def test_packed_rows_have_the_log_probabilities_of_the_plain_forward(tiny_dir, kind):
    """Packed rows of any length and order score as alone, with sliding windows (6 tokens here) too."""
    model = load_model(tiny_dir(kind)).model
    rows = random_rows()
    with torch.no_grad():
        packed = packed_logits(model, PackedRows.of(rows))
        plain = torch.cat([plain_logits(model, row) for row in rows])
    torch.testing.assert_close(packed.log_softmax(-1), plain.log_softmax(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("window", [None, 2])
def test_each_token_sees_its_sequence_up_to_itself(window):
    """A token sees itself and the earlier tokens of its own sequence; with a window, only the nearest of them."""
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

"""Attention of new tokens to the keys of their own sequences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fakes.fake_device import FakeDevice
from fakes.tiny_model import CONFIGS
from nat.backend import attention
from nat.backend.attention import (
    PackedRows,
    PaddedQueries,
    _bucket_rows,
    masked_attention,
    packed_attention,
    packed_logits,
    planned_length,
    similar,
)
from nat.backend.model import token_logprobs
from nat.backend.model_loader import load_model
from nat.errors import ModelNotSupported

LENGTHS = (3, 70, 20, 130, 1)


def random_rows(lengths=LENGTHS, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 250, (n,), generator=generator).tolist() for n in lengths]


def plain_logits(model, row):
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([row]), use_cache=False).logits[0]
    model.set_attn_implementation("nat_packed")
    return logits


@pytest.mark.parametrize("kind", CONFIGS)
def test_packed_rows_have_the_log_probabilities_of_the_plain_forward(tiny_dir, kind):
    """Packed rows of any length and order score as alone, with sliding windows (6 tokens here) too."""
    model = load_model(tiny_dir(kind)).model
    rows = random_rows()
    with torch.no_grad():
        packed = packed_logits(model, PackedRows.of(rows))
        plain = torch.cat([plain_logits(model, row) for row in rows])
    torch.testing.assert_close(packed.log_softmax(-1), plain.log_softmax(-1), atol=1e-5, rtol=0)


def test_packed_rows_have_the_gradients_of_the_plain_forward(tiny_dir):
    """The gradient of a loss over packed rows is the sum of the rows' own gradients."""
    model = load_model(tiny_dir("qwen2")).model
    rows = random_rows()
    packed = PackedRows.of(rows)
    targets = torch.tensor([token for row in rows for token in (*row[1:], 0)])
    token_logprobs(packed_logits(model, packed, torch.arange(len(targets))), targets).sum().backward()
    got = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    for row in rows:
        token_logprobs(plain_logits(model, row), torch.tensor([*row[1:], 0])).sum().backward()
    for name, parameter in model.named_parameters():
        scale = parameter.grad.abs().max()
        torch.testing.assert_close(got[name] / scale, parameter.grad / scale, atol=1e-5, rtol=0)


def test_only_the_kept_positions_reach_the_vocabulary(tiny_dir):
    """`keep_K` selects packed indices in the given order."""
    model = load_model(tiny_dir("gpt2")).model
    packed = PackedRows.of(random_rows())
    with torch.no_grad():
        kept = packed_logits(model, packed, torch.tensor([5, 0]))
        everything = packed_logits(model, packed)
    torch.testing.assert_close(kept, everything[[5, 0]])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_padding_at_most_doubles_long_rows(lengths):
    """Each token is in exactly one cell of one bucket; a bucket of long rows is at least half full."""
    positions = torch.cat([torch.arange(n) for n in lengths])
    seen = []
    for bucket in _bucket_rows(tuple(lengths), positions, torch.device("cpu")):
        tokens = range(sum(lengths)) if bucket.tokens_N is None else bucket.tokens_N.tolist()
        size = bucket.num_rows * bucket.length
        cells = range(size) if bucket.cells_N is None else bucket.cells_N.tolist()
        assert len(set(cells)) == len(list(tokens))
        assert bucket.length <= 64 or 2 * len(set(cells)) >= size
        seen.extend(tokens)
    assert sorted(seen) == list(range(sum(lengths)))


def test_unsupported_attention_is_refused():
    """A model that passes attention sinks or soft caps is refused instead of computed without them."""
    q = torch.zeros(1, 1, 1, 8)
    with pytest.raises(ModelNotSupported, match="softcap"):
        packed_attention(nn.Module(), q, q, q, None, packed=PackedRows.of([[1]]), softcap=50.0)
    with pytest.raises(ModelNotSupported, match="dropout"):
        packed_attention(nn.Module(), q, q, q, None, packed=PackedRows.of([[1]]), dropout=0.1)
    with pytest.raises(TypeError, match="packed_logits"):
        packed_attention(nn.Module(), q, q, q, None)


def test_rows_must_cover_the_tokens():
    """Lengths that do not add up to the tokens are an error."""
    with pytest.raises(ValueError, match="3 tokens for rows that sum to 2"):
        PackedRows(torch.tensor([1, 2, 3]), [2])
    with pytest.raises(ValueError, match="at least one token"):
        PackedRows.of([[]])


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


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=20))
def test_buckets_have_rows_of_similar_size(sizes):
    """Each row is in one bucket; above 16, no size in a bucket is more than twice another."""
    buckets = similar(sizes)
    assert sorted(number for bucket in buckets for number in bucket) == list(range(len(sizes)))
    for bucket in buckets:
        for side in (0, 1):
            own = [max(16, sizes[number][side]) for number in bucket]
            assert max(own) <= 2 * min(own)


@pytest.mark.parametrize("most", [2**28, 2 * 3 * 9 * 2, 1], ids=["at once", "in parts", "one query at a time"])
def test_groups_with_a_mask_are_folded_on_a_gpu(monkeypatch, most):
    """Output and gradients are those of grouped-query attention on the CPU, however long the mask may be."""
    monkeypatch.setattr(attention, "_MOST_MASKED", most)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(2, heads, n, 8, generator=generator, dtype=torch.float64) for heads, n in ((6, 5), (2, 9), (2, 9))
    ]
    mask = torch.rand(2, 1, 5, 9, generator=generator) > 0.3
    mask[..., 0] = True
    found = []
    for device in ("cpu", "cuda"):
        with FakeDevice("cuda"):
            own = [each.to(device).detach().requires_grad_() for each in inputs]
            out = masked_attention(*own, mask.to(device), 0.2)
            gradients = torch.autograd.grad(
                out, own, torch.linspace(-1, 1, out.numel()).view(out.shape).to(device, out.dtype)
            )
            found.append([each.cpu() for each in (out.detach(), *gradients)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@given(st.integers(1, 100_000))
def test_a_gpu_pads_to_few_lengths(length):
    """At most an eighth more than needed from 512 on, in steps of 64 at least; a CPU pads nothing."""
    padded = planned_length(length, "cuda")
    assert length <= padded < length + max(64, length / 8)
    assert padded % 64 == 0
    assert planned_length(length, "cpu") == length


def test_the_lengths_that_a_gpu_sees_are_few():
    """All rows of up to 32,768 tokens have one of 56."""
    assert len({planned_length(length, "cuda") for length in range(1, 32_769)}) == 56

"""Rows with common prefixes are packed as a tree of tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.tiny_fixtures import mostly_slow
from fakes.tiny_model import CONFIGS
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.model import token_logprobs
from nat.backend.model_loader import load_model
from nat.backend.tree_attention import PackedTree, unique_tokens

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)


def branching_rows(seed: int = 0) -> list[list[int]]:
    """Rows with a shared prompt, a late branch, a continuation, a duplicate, a prefix and unrelated rows."""
    generator = torch.Generator().manual_seed(seed)

    def some(length: int) -> list[int]:
        return torch.randint(0, 250, (length,), generator=generator).tolist()

    prompt = some(90)
    first, second = prompt + some(40), prompt + some(100)
    parts_late, goes_on = first[:110] + some(5), first + some(70)
    return [second, first, some(3), parts_late, list(first), prompt[:50], goes_on, some(200), prompt[:7] + some(30)]


def gradients(model, packed, keep_K, targets_K) -> dict[str, torch.Tensor]:
    """Gradients of a sum in which each token has its own weight."""
    model.zero_grad()
    logprobs_K = token_logprobs(packed_logits(model, packed, keep_K), targets_K)
    (logprobs_K * torch.linspace(1, 2, len(targets_K))).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@given(ROWS)
def test_each_prefix_is_packed_once(rows):
    """The number of packed tokens is that of distinct prefixes, and each row is found along its path."""
    tree = PackedTree(rows)
    beginnings = {tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)}
    assert len(tree.token_ids_T) == unique_tokens(rows) == len(beginnings)
    for row, path in zip(rows, tree.paths, strict=True):
        assert tree.token_ids_T[path].tolist() == row
        assert tree.position_ids_T[path].tolist() == list(range(len(row)))


@pytest.mark.parametrize("kind", mostly_slow(CONFIGS, "qwen2", "gemma3"))
def test_the_gradient_is_that_of_separate_rows(tiny_dir, kind):
    """Gradients agree to 1e-6 of the largest entry in fp64, right after each branch point, too."""
    model = load_model(tiny_dir(kind)).model.double()
    rows = branching_rows()
    targets_K = torch.tensor([token for row in rows for token in (*row[1:], 0)])
    tree, plain = PackedTree(rows), PackedRows.of(rows)
    along_paths = torch.tensor([int(index) for path in tree.paths for index in path])
    shared = gradients(model, tree, along_paths, targets_K)
    alone = gradients(model, plain, torch.arange(len(targets_K)), targets_K)
    largest = max(float(gradient.abs().max()) for gradient in alone.values())
    for name, gradient in alone.items():
        torch.testing.assert_close(shared[name] / largest, gradient / largest, atol=1e-6, rtol=0)


@settings(max_examples=25, deadline=None)
@given(ROWS)
def test_random_trees_give_the_scores_of_their_rows(tiny_dir, rows):
    """Rows score the same however they share prefixes."""
    model = load_model(tiny_dir("qwen2")).model
    tree = PackedTree(rows)
    with torch.no_grad():
        shared = packed_logits(model, tree, torch.tensor([int(index) for path in tree.paths for index in path]))
        torch.testing.assert_close(shared, packed_logits(model, PackedRows.of(rows)), atol=1e-5, rtol=0)

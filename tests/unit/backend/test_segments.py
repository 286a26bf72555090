"""Attention in segments equals padded attention, and a kernel that does not is not used."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AttentionInterface

from fakes.segment_kernels import missing, written_out
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PACKED_ATTENTION, PackedRows, packed_attention
from nat.backend.lora import LoraSettings
from nat.backend.model_checks import use_kernel
from nat.backend.model_loader import load_model
from nat.backend.segments import attend, flash
from nat.backend.tree_attention import PackedTree
from nat.wire.training import TrainingConfig

ROWS = {
    "separate": [[1, 2, 3], [4], list(range(10, 90))],
    "one": [[1, 2, 3, 4]],
    "branches": [[1, 2, 3, 4, 5], [1, 2, 3, 9], [1, 2], [1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 9], [8]],
}
WRITTEN_OUT = "test_written_out"
AttentionInterface.register(WRITTEN_OUT, partial(packed_attention, kernel=written_out))


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("batch", [PackedTree, PackedRows.of])
@pytest.mark.parametrize("window", [None, 1, 3, 1000])
@pytest.mark.parametrize(("kv_heads", "scale"), [(4, None), (2, 0.3)])
def test_segments_say_who_attends_to_whom(rows, batch, window, kv_heads, scale):
    """Output and gradients are those of padded attention, with groups of heads, windows and scales."""
    packed = batch(rows)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(heads, len(packed.token_ids_T), 8, dtype=torch.float64, generator=generator).requires_grad_()
        for heads in (4, kv_heads, kv_heads)
    ]
    padded = packed.attend(0, *inputs, scale=scale, window=window)
    found = attend(written_out, packed.segments, *inputs, scale=scale, window=window)
    upstream = torch.randn(padded.shape, dtype=torch.float64, generator=generator)
    torch.testing.assert_close(found, padded)
    gradients = (torch.autograd.grad(out, inputs, upstream) for out in (found, padded))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["qwen2", "gemma3", "gpt2"])
def test_an_update_with_a_kernel_gives_the_weights_of_padded_attention(tiny_dir, make_learner, kind):
    """Through the model, with windows and an adapter; the sampler goes on with its own batches."""
    trained = []
    for name in (PACKED_ATTENTION, WRITTEN_OUT):
        loaded = load_model(tiny_dir(kind), device="cpu", dtype="float32", lora=LoraSettings(4))
        if name == WRITTEN_OUT:
            use_kernel(loaded.model, name, written_out)
        assert loaded.model.config._attn_implementation == name
        groups = random_groups(loaded, prompt=6)
        make_learner(loaded).update(groups, resolve(TrainingConfig(learning_rate=1e-3)))
        trained.append(loaded.trainable_parameters())
    for name, parameter in trained[0].items():
        torch.testing.assert_close(parameter, trained[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("alone", "said"),
    [
        (missing, "fails here: RuntimeError: FlashAttention only"),
        (written_out, "cannot run packed rows: RuntimeError: Flash"),
    ],
)
def test_a_kernel_that_fails_is_not_used(tiny_dir, caplog, alone, said):
    """Alone or inside the model: training pads its rows, and one warning says why."""
    AttentionInterface.register("test_missing", partial(packed_attention, kernel=missing))
    model = load_model(tiny_dir("qwen2"), device="cpu", dtype="float32").model
    use_kernel(model, "test_missing", alone)
    assert model.config._attn_implementation == PACKED_ATTENTION
    (record,) = caplog.records
    assert said in record.getMessage()


def test_torch_takes_the_arguments():
    """With fake tensors, torch checks the shapes of its kernel's arguments without a GPU."""
    real = PackedTree(ROWS["branches"]).segments
    tokens = int(real.query_starts[-1])
    assert real.keys_K is not None
    with FakeTensorMode(), torch.no_grad():
        starts, key_starts, keys = (
            torch.empty(x.shape, dtype=x.dtype, device="cuda")
            for x in (real.query_starts, real.key_starts, real.keys_K)
        )
        segments = replace(real, query_starts=starts, key_starts=key_starts, keys_K=keys)
        query, key = (torch.empty(heads, tokens, 16, device="cuda", dtype=torch.bfloat16) for heads in (4, 2))
        for window in (None, 3):
            out = attend(flash, segments, query, key, key, scale=0.3, window=window)
            assert out.shape == (tokens, 4, 16)

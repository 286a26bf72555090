"""Each part of the predicted memory, computed by hand for a small model; bytes."""

import pytest

from nat.sizing.memory import Setup, Workload, layer_bytes, predict
from nat.sizing.shape import ModelShape

SHAPE = ModelShape(1000, hidden=64, intermediate=192, layers=2, heads=4, kv_heads=2, head_size=16, tied=True)
"""A decoder layer has linear layers of 64 x 64 (2), 64 x 32 (2) and 64 x 192 (3)."""
WEIGHTS = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 192) + 5 * 64 + 1000 * 64
ADAPTERS = 2 * 16 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 192))
"""Weights of adapters of rank 16."""
WORKLOAD = Workload(chats=16, chat_tokens=1024, row_tokens=1024, step_tokens=4096)


@pytest.mark.parametrize(
    ("dtype", "rank", "expected"),
    [
        ("float32", None, 6 * 64 * 4 + 192 * 4 + 4 * 192 * 4),
        ("bfloat16", None, 2 * 64 * (4 + 4) + 192 * 2 + 4 * 192 * 2),
        ("float32", 16, 4 * 64 * 4 + 192 * 4 + 4 * 192 * 4 + 7 * 16 * 4),
        ("float32", 128, 4 * 64 * 4 + 192 * 4 + 4 * 192 * 4 + 7 * 128 * 4),
        ("bfloat16", 16, 2 * 64 * 4 + (5 * 64 + 64 + 192) * 4 + 192 * 2 + 3 * 192 * 2 + 7 * 16 * 4),
    ],
)
def test_a_layer_keeps_these_bytes_per_token(dtype, rank, expected):
    """Norms, attention and feed-forward network; adapters add their rank in fp32 for each of seven linear layers."""
    assert layer_bytes(SHAPE, Setup("cuda", dtype, rank)) == expected


def test_the_activations_of_a_backward_pass():
    """What all layers keep for the tokens of a micro-batch, and the logits of the scored tokens."""
    setup = Setup("cuda", "float32", 16, gradient_checkpointing=False)
    kept, logits = 4096 * 2 * layer_bytes(SHAPE, setup), 3 * (2048 * 1000) * 4
    assert predict(SHAPE, setup, WORKLOAD).parts["activations"] == pytest.approx(1.1 * kept + logits, abs=1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, WEIGHTS * 4),
        ({"has_reference": True}, 2 * WEIGHTS * 4),
        ({"lora_rank": 16}, WEIGHTS * 4 + ADAPTERS * 4),
        ({"lora_rank": 16, "has_reference": True}, WEIGHTS * 4 + ADAPTERS * 4),
    ],
    ids=str,
)
def test_copies_of_the_weights(settings, expected):
    """A reference and a second copy are whole models, unless adapters are trained: without them the base is there."""
    assert predict(SHAPE, Setup("cuda", "float32", **settings), WORKLOAD).parts["weights"] == expected


@pytest.mark.parametrize(
    ("device", "dtype", "settings", "optimizer", "host"),
    [
        ("cuda", "float32", {}, 8 * WEIGHTS, 12 * WEIGHTS),
        ("cuda", "bfloat16", {}, 12 * WEIGHTS, 12 * WEIGHTS),
        ("cpu", "float32", {}, 8 * WEIGHTS, 0),
    ],
    ids=str,
)
def test_the_optimizer_is_on_the_device(device, dtype, settings, optimizer, host):
    """The copies that could undo an update on a GPU are in host memory."""
    found = predict(SHAPE, Setup(device, dtype, **settings), WORKLOAD)
    assert found.parts.get("optimizer", 0) == pytest.approx(optimizer, abs=1)
    assert found.host == pytest.approx(host, abs=1)

"""Gradient checkpointing: the same gradient from fewer kept activations, and how many layers `auto` chooses."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from fakes.tiny_fixtures import mostly_slow
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.checkpointing import Checkpointing, activation_bytes, checkpointed
from nat.errors import UpdateRejected
from nat.sizing.rules import CHECKPOINTED_SHARE

KINDS = mostly_slow(["qwen2", "qwen3", "llama", "gpt2", "mistral", "gemma3"], "qwen2", "gpt2")
LARGE = 10**6


def gradient(model, rows, layers):
    """The gradient of a sum of logits, and the bytes that the graph keeps outside of the checkpointed layers."""
    kept = 0

    def keep(tensor):
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    model.zero_grad()
    with checkpointed(layers), saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = packed_logits(model, PackedRows.of(rows))
    logits.sin().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}, kept


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", [None, LoraSettings(4)], ids=["full", "lora"])
def test_the_gradient_is_the_same_and_less_is_kept(tiny_dir, kind, lora):
    """Bit by bit, with all layers checkpointed and with the first of them; the model stays in evaluation mode."""
    model = load_model(tiny_dir(kind), device="cpu", lora=lora).model
    layers = Checkpointing(model).layers
    assert len(layers) == 2
    rows = [list(range(1, 30)), list(range(40, 50))]
    (plain, everything), (one, less), (both, least) = (gradient(model, rows, layers[:count]) for count in range(3))
    assert plain.keys() == one.keys() == both.keys()
    assert all(torch.equal(plain[name], one[name]) and torch.equal(plain[name], both[name]) for name in plain)
    assert everything > less > least
    assert not any(module.training for module in model.modules())


def test_auto_chooses_as_many_layers_as_the_memory_asks_for(tiny_dir):
    """None with room for all, every second of two with room for half, all of them with no room."""
    model = load_model(tiny_dir("llama"), device="cpu").model
    needed = activation_bytes(model) * LARGE
    chosen = [
        len(Checkpointing(model).choose("auto", LARGE, free=int(needed * share / CHECKPOINTED_SHARE)))
        for share in (1.01, 0.9, 0.4, 0)
    ]
    assert chosen == [0, 1, 2, 2]
    assert [len(Checkpointing(model).choose(choice, LARGE, free=0)) for choice in (True, False)] == [2, 0]
    assert len(Checkpointing(model).choose("auto", LARGE, free=None)) == 0


def test_a_micro_batch_beyond_the_memory_is_refused(loaded):
    """The job fails with the number to lower, before its activations exist; the system would kill the backend."""
    Checkpointing(loaded.model).check_room(1000)
    with pytest.raises(UpdateRejected, match=r"has 1000000000000 tokens, .* GB are free") as error:
        Checkpointing(loaded.model).check_room(10**12)
    assert (error.value.kind, "lower micro_batch_tokens" in error.value.hint) == ("invalid_batch", True)

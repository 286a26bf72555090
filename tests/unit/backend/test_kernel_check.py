"""A kernel that does not compute what padded attention computes is found out."""

from functools import partial

import pytest
import torch
from transformers import AttentionInterface

from fakes.segment_kernels import blind_to_windows, missing, without_gradient, written_out
from nat.backend.attention import FLASH_ATTENTION, HeadShape, packed_attention
from nat.backend.kernel_check import disagreement
from nat.backend.model_checks import use_kernel
from nat.backend.model_loader import load_model
from nat.backend.segments import flash

CUDA = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def check(kernel, device="cpu", dtype=torch.float64, most=1e-9):
    return disagreement(kernel, HeadShape(4, 2, 16, 16), dtype=dtype, device=torch.device(device), most=most)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (written_out, None),
        (missing, "Ampere GPUs or newer"),
        (blind_to_windows, "differs by"),
        (without_gradient, "differs by"),
        (flash, "aten::_flash_attention_forward"),
    ],
)
def test_a_kernel_is_compared_with_padded_attention(kernel, said):
    """Errors, wrong outputs and wrong gradients are found; torch's kernel does not run on a CPU."""
    found = check(kernel)
    assert found is None if said is None else said in found


def test_a_kernel_is_compared_where_gradients_are_off():
    """As where the learner loads its reference."""
    with torch.no_grad():
        assert check(written_out) is None


def test_a_kernel_that_agrees_is_chosen(tiny_dir, monkeypatch):
    """The model may have it, and the model gives the same logits with it."""
    monkeypatch.setitem(
        AttentionInterface._global_mapping, FLASH_ATTENTION, partial(packed_attention, kernel=written_out)
    )
    model = load_model(tiny_dir("qwen2"), device="cpu", dtype="float32").model
    use_kernel(model, FLASH_ATTENTION, written_out)
    assert model.config._attn_implementation == FLASH_ATTENTION


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=CUDA)])
def test_torchs_kernel_agrees_on_a_gpu(tiny_dir, device):
    """In bfloat16, forward and backward; so the loader chooses it."""
    assert check(flash, device, torch.bfloat16, 5e-2) is None
    loaded = load_model(tiny_dir("qwen2"), device=device, dtype="bfloat16")
    assert loaded.model.config._attn_implementation == FLASH_ATTENTION

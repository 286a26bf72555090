"""Reordered weights compute what the weights compute."""

import os
import platform
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from nat.backend import packed_linear
from nat.backend.packed_linear import PackedLinears
from nat.backend.products import product_times, with_mkl, with_onednn

WIDTH, OUT = 256, 192
RESIDENT = f"""
import resource
import torch
from nat.backend import memory
from nat.backend.packed_linear import PackedLinears

memory.free_bytes = lambda _: 0  # where others products than MKL's are fastest, pages are returned if memory is short

def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

freed = torch.ones(2**21)  # glibc takes its like from the heap from now on
del freed
*freed, after_them = [torch.ones(2**21) for _ in range(40)]
del freed
linears = PackedLinears(torch.nn.Sequential(*[torch.nn.Linear({WIDTH}, {OUT}) for _ in range(20)]))
before = resident_bytes()
with linears.in_use():
    print(resident_bytes() - before)
"""
"""Prints by how much the process's memory changes as weights are reordered."""


def layer(dtype=torch.float32, *, bias=True):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, OUT, bias=bias, dtype=dtype))


def computed(linears, model, x):
    with torch.no_grad(), linears.in_use():
        return model(x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("library", ["mkl", "mkldnn"])
def test_each_library_gives_the_product(library, bias):
    """MKL and oneDNN compute what torch's operator does, whichever of them is faster here."""
    if not getattr(torch.backends, library).is_available():
        pytest.skip(f"this torch has no {library}")
    [module] = layer(bias=bias)
    product = (with_mkl if library == "mkl" else with_onednn)(module.weight.detach(), module.bias)
    for tokens in (1, 3, 64, 700):
        x = torch.randn(1, tokens, WIDTH)
        with torch.inference_mode():
            torch.testing.assert_close(product(x), module(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float64, 0)])
def test_any_number_of_tokens_gives_the_product(dtype, tolerance, bias):
    """One token, a few, and more than the layout was chosen for; float64 is left alone."""
    model = layer(dtype, bias=bias)
    linears = PackedLinears(model)
    for tokens in (1, 3, 64, 700):
        x = torch.randn(1, tokens, WIDTH, dtype=dtype)
        torch.testing.assert_close(computed(linears, model, x), model(x).detach(), atol=tolerance, rtol=tolerance)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variable limits oneDNN on x86 alone")
def test_a_cpu_that_cannot_reorder_bfloat16_computes_from_the_weights():
    """OneDNN reorders bfloat16 on some CPUs only; on others, such as those with AVX2 alone, layers stay as they are."""
    code = (
        "import torch\n"
        "from nat.backend.packed_linear import PackedLinears\n"
        "layer = torch.nn.Sequential(torch.nn.Linear(256, 192, dtype=torch.bfloat16))\n"
        "x = torch.ones(3, 256, dtype=torch.bfloat16)\n"
        "with torch.no_grad(), PackedLinears(layer).in_use():\n"
        "    print(tuple(layer(x).shape))\n"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "(3, 192)\n", done.stderr


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("bias", [True, False])
def test_many_tokens_may_have_another_product_than_few(bias, monkeypatch):
    """Where torch's own operator is faster for a prompt, the layout for decoding is used for few tokens alone."""
    monkeypatch.setattr(packed_linear, "fastest_packer", lambda: with_onednn)
    monkeypatch.setattr(packed_linear, "onednn_is_faster", lambda: False)
    model = layer(bias=bias)
    linears = PackedLinears(model)
    for tokens in (1, 255, 256, 700):
        x = torch.randn(1, tokens, WIDTH)
        found, usual = computed(linears, model, x), model(x).detach()
        torch.testing.assert_close(found, usual, atol=1e-5, rtol=1e-5)
        assert torch.equal(found, usual) or tokens < 256


def test_weights_that_changed_in_place_are_used_after_forget():
    """The copy is made once; `forget` drops it, and weights in another place are noticed without it."""
    model, x = layer(), torch.randn(2, WIDTH)
    linears = PackedLinears(model)
    before = computed(linears, model, x)
    with torch.no_grad():
        model[0].weight.mul_(2.0)
    torch.testing.assert_close(computed(linears, model, x), before)
    linears.forget()
    after = computed(linears, model, x)
    torch.testing.assert_close(after, model(x).detach())
    model[0].weight.data = model[0].weight.data * 3.0
    torch.testing.assert_close(computed(linears, model, x), model(x).detach())


def test_frozen_weights_are_kept():
    """The base of an adapter does not change in training, so `forget` does not make its copy again."""
    model, x = layer(), torch.randn(2, WIDTH)
    model.requires_grad_(requires_grad=False)
    linears = PackedLinears(model)
    before = computed(linears, model, x)
    model[0].weight.mul_(2.0)
    linears.forget()
    torch.testing.assert_close(computed(linears, model, x), before)


def test_gradients_come_from_the_weights_themselves():
    """Outside of the block the layer computes as before, also after an error inside it."""
    model, x = layer(), torch.randn(2, WIDTH)
    linears = PackedLinears(model)
    with pytest.raises(RuntimeError, match="stop"), linears.in_use():
        raise RuntimeError("stop")
    model(x).sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns free pages on request")
def test_memory_that_was_used_before_is_not_held_by_reordered_weights():
    """MKL asks for more memory than it writes; in pages that were used and freed, the rest would count too.

    A process of its own has a heap that no other test has used.
    """
    done = subprocess.run([sys.executable, "-c", RESIDENT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < -(2**27)


def test_each_product_is_timed_with_one_thread_and_its_fastest_run_counts():
    """A product that another program delays once keeps its time; the number of threads is as before."""
    threads, seen, delays = torch.get_num_threads(), set(), iter([0.05])

    def quick(weight, _):
        def product(x):
            time.sleep(next(delays, 0))
            seen.add(torch.get_num_threads())
            return x @ weight

        return product

    def slow(weight, _):
        def product(x):
            time.sleep(0.005)
            return x @ weight

        return product

    times = product_times({"quick": quick, "slow": slow})
    assert times["quick"] < 0.005 <= times["slow"]
    assert seen == {1}
    assert torch.get_num_threads() == threads

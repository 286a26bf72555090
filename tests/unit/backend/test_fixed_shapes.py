import pytest
import torch

from fakes.tiny_fixtures import load_again
from nat.backend.attention import HeadShape
from nat.backend.fixed_shapes import LEAST_ROWS, FixedShapes, RepeatableLayers, fixed_shapes, with_enough_rows
from nat.backend.model_loader import load_model
from nat.backend.path_checks import check_repeatable
from nat.errors import ModelNotSupported


def test_keys_fill_whole_blocks_and_a_last_one_that_sums_alike():
    """The last block has the next allowed length; none is added after a whole one."""
    shapes = FixedShapes([64, 192, 512])
    assert [shapes.keys(n) for n in (0, 1, 64, 65, 193, 512, 513, 1100)] == [0, 64, 64, 192, 512, 512, 576, 1216]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_whole_block_is_always_allowed(dtype):
    """The lengths rise, and the last one is a whole block."""
    lasts = fixed_shapes([HeadShape(4, 2, 16, 16), HeadShape(4, 1, 32, 16)], dtype).lasts
    assert list(lasts) == sorted(lasts)
    assert lasts[-1] == 512


@pytest.mark.parametrize("rows", [0, 1, 3, LEAST_ROWS, 20])
def test_a_product_gets_enough_rows(rows):
    """It has the least rows or more, and gives those that were asked for, in their shape."""
    seen = []
    x = torch.arange(2.0 * rows).view(rows, 1, 2)
    out = with_enough_rows(lambda x: seen.append(x.numel() // 2) or 3 * x, x)
    assert torch.equal(out, 3 * x)
    assert seen == [max(rows, LEAST_ROWS)]


def experts(x, weight):
    """Two experts with the same weights, of which the first gets a single row."""
    weights = torch.stack([weight, weight]).transpose(1, 2)
    return torch._grouped_mm(x, weights, offs=torch.tensor([1, len(x)], dtype=torch.int32))


PRODUCTS = {
    "linear": torch.nn.functional.linear,
    "GPT-2": lambda x, weight: torch.addmm(torch.zeros(len(weight), dtype=x.dtype), x, weight.t()),
    "adapter": lambda x, weight: x.new_zeros(len(x), len(weight)).addmm_(x, weight.t(), alpha=2.0) / 2,
    "experts": experts,
}


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_row_of_a_product_is_its_own(kind, dtype):
    """Whatever the number of rows and its place, a row has the same bits, near those of torch's own product."""
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, 64, generator=random).to(dtype) for size in (40, 48))
    compute = PRODUCTS[kind]
    with torch.no_grad(), RepeatableLayers():
        whole = compute(x, weight)
        spans = [(begin, begin + rows) for begin in (0, 5) for rows in (1, 2, 3, 7, 8, 9, 35)]
        parts = [(begin, compute(x[begin:end], weight)) for begin, end in spans]
    assert all(torch.equal(part, whole[begin : begin + len(part)]) for begin, part in parts)
    torch.testing.assert_close(whole, x @ weight.t(), atol=1e-4 if dtype == torch.float32 else 0.2, rtol=0.01)


CURVES = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu, "sigmoid": torch.Tensor.sigmoid}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("width", [1, 48, 1000])
@pytest.mark.parametrize("name", CURVES)
def test_an_activation_is_its_own(name, width, threads):
    """It does not depend on how many others torch computes, and on how threads share them."""
    x = torch.randn(120, width, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with RepeatableLayers():
            whole = CURVES[name](x)
            for rows in (1, 3, 9, 47, 119):
                assert torch.equal(CURVES[name](x[:rows]), whole[:rows]), rows
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(whole, CURVES[name](x))


def test_a_model_whose_bits_depend_on_its_batch_is_refused(tiny_dir):
    """If a layer computes a single row in another way, the message says what to do."""
    loaded = load_again(tiny_dir("llama"), device="cpu", deterministic=True)
    check_repeatable(loaded)
    norm = loaded.model.model.norm  # by a hook, because the sampler computes layers in a way of its own
    norm.register_forward_hook(lambda _, __, x: x * (1 + 1e-3 * (len(x.flatten(0, -2)) == 1)))
    with pytest.raises(ModelNotSupported, match="other bits for a row alone than beside others"):
        check_repeatable(loaded)


def test_a_model_on_the_plain_path_is_refused(tiny_dir):
    """There, other sequences cut its prompts."""
    with pytest.raises(ModelNotSupported, match=r"deterministic: .* takes the plain path, because we say so"):
        load_model(tiny_dir("llama"), device="cpu", deterministic=True, plain_because="we say so")

import pytest
import torch

from fakes.tiny_fixtures import load_again
from nat.backend.fixed_shapes import LEAST_ROWS, FixedShapes, at_least, fixed_shapes
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
    lasts = fixed_shapes([16, 32], dtype).lasts
    assert list(lasts) == sorted(lasts)
    assert lasts[-1] == 512


def test_indices_are_repeated_to_the_least_rows():
    """The last one is, and enough of them stay as they are."""
    assert at_least(torch.tensor([3, 5])).tolist() == [3] + [5] * (LEAST_ROWS - 1)
    assert at_least(torch.arange(20)).tolist() == list(range(20))


def test_a_model_whose_bits_depend_on_its_batch_is_refused(tiny_dir, monkeypatch):
    """If products may have a single row, rows alone are other ones, and the message says what to do."""
    loaded = load_again(tiny_dir("llama"), device="cpu", deterministic=True)
    check_repeatable(loaded)
    monkeypatch.setattr(FixedShapes, "rows", staticmethod(lambda count: count))
    norm = loaded.model.model.norm  # by a hook, because the sampler computes layers in a way of its own
    norm.register_forward_hook(lambda _, __, x: x * (1 + 1e-3 * (len(x.flatten(0, -2)) == 1)))
    with pytest.raises(ModelNotSupported, match="other bits for a row alone than beside others"):
        check_repeatable(loaded)


def test_a_model_on_the_plain_path_is_refused(tiny_dir):
    """There, other sequences cut its prompts."""
    with pytest.raises(ModelNotSupported, match=r"deterministic: .* takes the plain path, because we say so"):
        load_model(tiny_dir("llama"), device="cpu", deterministic=True, plain_because="we say so")

import pytest
import torch

from nat.backend.inference.batch import StepBatch
from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.scheduler import Chunk


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 100])
def test_many_keys_in_slots_are_weighed_as_few_are(dtype, window):
    """A decoding step over slots of different lengths is plain attention of each sequence, in either way of computing.

    In bfloat16, the error is that of its eight bits.
    """
    generator = torch.Generator().manual_seed(1)
    ends, groups, heads, size = [700, 699, 350, 30], 2, 6, 128
    cache = SlotCache()
    cache.reserve(4, 701)
    kept = [
        x.copy_(torch.randn(x.shape, generator=generator))
        for x in cache.layer(0, *torch.zeros(2, 2, 1, 128, dtype=dtype))
    ]
    query, key, value = (torch.randn(n, 4, size, generator=generator).to(dtype) for n in (heads, groups, groups))
    batch = StepBatch(cache, [Chunk(slot, end, [1]) for slot, end in enumerate(ends)], [], torch.device("cpu"))
    found = batch.attend(0, query, key, value, scale=0.2, window=window)
    for slot, end in enumerate(ends):
        first = max(0, end + 1 - (window or 1000))
        keys, values = (x[slot, :, first : end + 1].double().repeat_interleave(3, 0) for x in kept)
        weights = (0.2 * query[:, slot, None].double() @ keys.transpose(1, 2)).softmax(-1)
        expected = (weights @ values).squeeze(1)
        error = (found[slot].double() - expected).norm() / expected.norm()
        assert error < (1e-5 if dtype == torch.float32 else 2e-2)

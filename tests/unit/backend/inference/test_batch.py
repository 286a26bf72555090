import pytest
import torch
import torch.nn.functional as F

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


@pytest.fixture
def attention(monkeypatch):
    """Keeps what is passed to torch's attention: the shape of the keys, and whether a mask stands beside groups."""
    seen = []
    real = F.scaled_dot_product_attention

    def attend(query, key, value, *, attn_mask=None, enable_gqa=False, **named):
        seen.append((tuple(key.shape), attn_mask is not None and enable_gqa))
        return real(query, key, value, attn_mask=attn_mask, enable_gqa=enable_gqa, **named)

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    return seen


def steps_of(device, window, dtype=torch.float32):
    """Attention in six steps: new prompts, their rest, and answers beside a later prompt; two groups of three heads."""
    generator, device = torch.Generator().manual_seed(2), torch.device(device)
    cache = SlotCache()

    def step(decoding, prefill):
        batch = StepBatch(cache, decoding, prefill, device)
        tokens = sum(len(chunk.token_ids) for chunk in decoding + prefill)
        heads = [torch.randn(n, tokens, 16, generator=generator).to(device, dtype) for n in (6, 2, 2)]
        return batch.attend(0, *heads, scale=None, window=window).cpu()

    new = [Chunk(0, 0, [1] * 70), Chunk(1, 0, [1] * 9)]
    rest = [Chunk(0, 70, [1] * 11), Chunk(1, 9, [1] * 90)]
    found = [step([], new), step([], rest)]
    later = Chunk(2, 0, [1] * 5)
    found += [step([Chunk(0, 81 + at, [1]), Chunk(1, 99 + at, [1])], [later] if at == 1 else []) for at in range(4)]
    return found


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("window", [None, 30])
def test_a_real_gpu_gives_what_the_cpu_gives(window):
    """In float32, with what its kernels round."""
    for one, other in zip(steps_of("cuda", window), steps_of("cpu", window), strict=True):
        torch.testing.assert_close(one, other, atol=1e-2, rtol=1e-2)

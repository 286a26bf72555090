"""Score rows the way the sampler does: through its cache, in chunks, and token by token.

Shapes: K sampled tokens of a row.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from nat.backend.attention import packed_logits
from nat.backend.inference.batch import StepBatch
from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.scheduler import Chunk
from nat.backend.model import LoadedModel, token_logprobs
from nat.backend.training.batch import Row
from nat.backend.training.micro_batch import temperature_tensor


@torch.no_grad()
def served_logprobs(loaded: LoadedModel, rows: Sequence[Row]) -> dict[int, Tensor]:
    """Log probabilities [K] of the sampled tokens, by row, from the three kinds of step that a request goes through.

    The first half of a row enters as a new prompt, the rest as its continuation, the last token as a decoding step.
    """
    cache = SlotCache()
    slots = sorted(rows, key=lambda row: -len(row.input_ids))
    cuts = [(max(1, len(row.input_ids) // 2), len(row.input_ids)) for row in slots]
    rows_cuts = list(enumerate(zip(slots, cuts, strict=True)))
    fresh = [Chunk(slot, 0, row.input_ids[:half]) for slot, (row, (half, _)) in rows_cuts]
    continued = [
        Chunk(slot, half, row.input_ids[half : end - 1]) for slot, (row, (half, end)) in rows_cuts if end - 1 > half
    ]
    decoding = [Chunk(slot, end - 1, row.input_ids[-1:]) for slot, (row, (half, end)) in rows_cuts if end > half]
    found: dict[int, list[Tensor]] = {row.index: [] for row in rows}
    for new, old in ((fresh, []), (continued, []), ([], decoding)):
        if new or old:
            for index, part_K in _step(loaded, StepBatch(cache, old, new, loaded.device), slots):
                found[index].append(part_K)
    return {index: torch.cat(parts) for index, parts in found.items()}


def _step(loaded: LoadedModel, batch: StepBatch, slots: Sequence[Row]) -> list[tuple[int, Tensor]]:
    """Run one step and score the sampled tokens that its chunks predict, by row."""
    keep, targets, temperatures, sizes, at = [], [], [], [], 0
    for chunk in batch.order:
        row = slots[chunk.slot]
        mine = [number for number, position in enumerate(row.positions) if chunk.start <= position < chunk.end]
        keep += [at + row.positions[number] - chunk.start for number in mine]
        targets += [row.targets[number] for number in mine]
        temperatures += [row.sampled_at[number] for number in mine]
        sizes.append(len(mine))
        at += len(chunk.token_ids)
    # A step runs even if nothing in it is scored, because later steps read what it leaves in the cache.
    logits_KV = packed_logits(loaded.model, batch, torch.tensor(keep or [0], device=loaded.device))
    if not keep:
        return []
    targets_K, at_K = torch.tensor(targets, device=loaded.device), temperature_tensor(temperatures, loaded.device)
    logprobs_K = token_logprobs(logits_KV, targets_K, at_K)
    parts = torch.split(logprobs_K, sizes)
    return [(slots[chunk.slot].index, part_K) for chunk, part_K in zip(batch.order, parts, strict=True)]

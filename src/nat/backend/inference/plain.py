"""Slots and steps of a model on the plain path: each sequence alone, with a cache of transformers' own.

Such a cache is a black box: it cannot be cut, copied to another sequence or found by a prefix. A slot therefore keeps
its sequence's tokens too, and computes them all again wherever its cache does not end where a chunk begins.

`slots_of` and `batch_of` give engine and proofs the kind that a model needs.
"""

from collections.abc import Callable, Iterable
from functools import cache as cached
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from nat.backend.inference.batch import StepBatch
from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.prefix_cache import KeyValues
from nat.backend.inference.scheduler import Chunk
from nat.backend.model import Continues, LoadedModel


class PlainSlots:
    """The sequences of all slots."""

    def __init__(self, continues: Continues) -> None:
        self._continues = continues
        self._held: dict[int, tuple[list[int], Any]] = {}
        """For each slot its tokens, and transformers' cache after them; None if there is none."""

    def reserve(self, slots: int, length: int) -> None:
        """Free what is in later slots."""
        del length
        self._held = {slot: held for slot, held in self._held.items() if slot < slots}

    def move(self, source: int, target: int, length: int) -> None:
        """Give a sequence, or its first tokens, to another slot; the source keeps its tokens alone."""
        token_ids, cache = self._held[source]
        self._held[source] = token_ids, None
        self._held[target] = token_ids[:length], cache if length == len(token_ids) else None

    def compute(self, decoder: nn.Module, chunk: Chunk, device: torch.device) -> Tensor:
        """Hidden states of a chunk's tokens; the slot then ends with them."""
        before, cache = self._held.get(chunk.slot, ([], None)) if chunk.start else ([], None)
        whole = before[: chunk.start] + chunk.token_ids
        assert len(whole) == chunk.end, "a slot holds all tokens before a chunk"
        can_continue = self._continues == "chunks" or (self._continues == "tokens" and len(chunk.token_ids) == 1)
        if not can_continue or len(before) != chunk.start:
            cache = None
        cached = 0 if cache is None else chunk.start
        outputs = forward(decoder, torch.tensor([whole[cached:]], device=device), cached, cache, self._continues)
        self._held[chunk.slot] = whole, cache_of(outputs)
        states: Tensor = outputs.last_hidden_state[0, chunk.start - cached :]
        return states


def forward(decoder: nn.Module, ids_1L: Tensor, start: int, cache: Any, continues: Continues) -> Any:
    """The decoder's outputs for tokens at these positions, after those in the cache."""
    takes = _taken_by(type(decoder).forward)
    arguments: dict[str, Any] = {"use_cache": continues != "nothing"}
    if "position_ids" in takes:  # some models cannot tell them from their cache
        arguments["position_ids"] = torch.arange(start, start + ids_1L.shape[1], device=ids_1L.device).unsqueeze(0)
    if cache is not None:
        arguments["past_key_values" if "past_key_values" in takes else "cache_params"] = cache
    return decoder(input_ids=ids_1L, **arguments)


@cached
def _taken_by(forward: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(forward).parameters)


def cache_of(outputs: Any) -> Any:
    """The cache after some tokens; None if the model gives none."""
    return outputs.get("past_key_values", outputs.get("cache_params"))


class PlainBatch:
    """The chunks of one step; a `RowByRow`."""

    def __init__(self, slots: PlainSlots, decoding: list[Chunk], prefill: list[Chunk], device: torch.device) -> None:
        self._slots = slots
        self._device = device
        self.computed: dict[int, KeyValues] = {}
        """Nothing: all tokens are in slots."""
        self.order = [*decoding, *prefill]
        ends = list(accumulate(len(chunk.token_ids) for chunk in self.order))
        self.last_K = torch.tensor(ends, device=device) - 1
        """Index of the last token of each chunk, in `order`."""
        self._ends = {chunk.slot: end for chunk, end in zip(self.order, ends, strict=True)}

    def outputs_of(self, chunks: Iterable[Chunk]) -> Tensor:
        """The indices of all tokens of some chunks, chunk by chunk."""
        ends = [(self._ends[chunk.slot], len(chunk.token_ids)) for chunk in chunks]
        return torch.cat([torch.arange(end - size, end) for end, size in ends]).to(self._device)

    def row_by_row(self, decoder: nn.Module) -> Tensor:
        """Hidden states of all chunks, one after another."""
        return torch.cat([self._slots.compute(decoder, chunk, self._device) for chunk in self.order])


def slots_of(loaded: LoadedModel, max_slots: int | None = None) -> SlotCache | PlainSlots:
    """Empty slots of the kind that the model needs."""
    return SlotCache(max_slots) if loaded.plain is None else PlainSlots(loaded.plain.continues)


def batch_of(
    slots: SlotCache | PlainSlots, decoding: list[Chunk], prefill: list[Chunk], device: torch.device
) -> StepBatch | PlainBatch:
    """One step over slots of either kind."""
    if isinstance(slots, PlainSlots):
        return PlainBatch(slots, decoding, prefill, device)
    return StepBatch(slots, decoding, prefill, device)

"""One step of all running sequences: schedule, run the model, sample, record the tokens. Single-threaded."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from nat.backend.inference.batch import StepBatch
from nat.backend.inference.graphs import DecodeGraphs
from nat.backend.inference.kv_cache import SlotCache
from nat.backend.inference.plain import PlainBatch, batch_of, slots_of
from nat.backend.inference.prefix_cache import Node, PrefixCache
from nat.backend.inference.sampler import Sampled, sample, score
from nat.backend.inference.scheduler import Chunk, KvBudget, Scheduler
from nat.backend.inference.sequence import Delta, Request, Sequence
from nat.backend.memory import free_bytes
from nat.backend.model import LoadedModel
from nat.backend.tree_attention import Ids
from nat.sizing.rules import FREE_SHARES, MAX_LOGITS, sampling_step_tokens

logger = logging.getLogger(__name__)

_MIN_REUSED_TOKENS = 16
"""Shorter prefixes are computed again, which is faster than copying them."""
_COPIED_BYTES = 2**18
"""Keys and values of a prompt in one layer; with more than these, those that share it read one copy."""


@dataclass(frozen=True)
class EngineLimits:
    """Bounds of an engine's batch and memory."""

    max_num_seqs: int = 64
    """Sequences that run at the same time."""
    max_step_tokens: int | None = None
    """Tokens of one step, None chooses by the model; long prompts are cut into chunks that fit."""
    prefix_cache_bytes: int = 256 * 2**20
    """Memory for the keys and values of earlier prompts and answers."""
    kv_cache_bytes: int | None = None
    """Memory for the keys and values of running sequences; others wait, and are computed again if they had begun."""
    short_tokens: int | None = None
    """Prompts up to this length are copied to each sequence's own keys and values; None chooses by the model."""

    @classmethod
    def of(
        cls, max_num_seqs: int, prefix_cache_mb: int | None, kv_cache_mb: int | None, device: torch.device
    ) -> "EngineLimits":
        """The limits of the backend's options; None gives a cache a share of the device's free memory."""
        free = free_bytes(device)
        kv, prefixes = (
            mb * 2**20 if mb is not None else None if free is None else free // share
            for mb, share in zip((kv_cache_mb, prefix_cache_mb), FREE_SHARES, strict=True)
        )
        limits = cls(max_num_seqs, kv_cache_bytes=kv)
        return limits if prefixes is None else replace(limits, prefix_cache_bytes=prefixes)


class Engine:
    """Samples from a model whose weights the learner may change between two steps while nothing runs.

    Keys and values are cached, within bounds, and reused by prompts with the same beginning; after a change of the
    weights, `forget` must be called.

    Several engines may share the model's layers, each with weights of its own: `activate` puts them in place before a
    step, and the cache belongs to these weights.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        policy_version: str,
        limits: EngineLimits = EngineLimits(),
        activate: Callable[[], None] = lambda: None,
    ) -> None:
        self.loaded = loaded
        self._activate = activate
        self.policy_version = policy_version
        """`name@step` of the weights; the learner sets it when it has changed them."""
        self.draining = False
        """True while an update waits: requests that have begun finish, the others wait for the new weights."""
        plain = loaded.plain
        short = _short_tokens(loaded, limits.short_tokens)
        step_tokens = sampling_step_tokens(loaded.widest, cpu=loaded.device.type == "cpu")
        if plain is not None and plain.continues != "chunks":  # each part of a prompt would compute it all again
            step_tokens = max(step_tokens, loaded.max_seq_length)
        max_tokens = None if limits.kv_cache_bytes is None else limits.kv_cache_bytes // loaded.token_bytes
        self._scheduler = Scheduler(
            limits.max_num_seqs,
            limits.max_step_tokens or step_tokens,
            KvBudget(max_tokens, short, None if plain is None else plain.state_bytes // plain.token_bytes),
            max_scored_tokens=max(1, MAX_LOGITS // loaded.vocab_size),
        )
        self._cache = slots_of(loaded, limits.max_num_seqs)
        self._graphs = DecodeGraphs(loaded, limits.max_num_seqs)
        self._prefixes = PrefixCache(limits.prefix_cache_bytes)
        self._short = short
        """Longer prompts are computed into the prefix cache; decoding copies what they do not share to their slots."""
        self._interrupted = False
        """True after the first sequence was interrupted, which is logged."""
        self._requests: dict[int, Request] = {}  # by the id of each unfinished sequence

    @property
    def has_work(self) -> bool:
        """True if a step has tokens to compute."""
        scheduler = self._scheduler
        if scheduler.running or not scheduler.waiting:
            return bool(scheduler.running)
        return not self.draining or any(request.begun for request, _ in scheduler.waiting)

    @property
    def requests(self) -> list[Request]:
        """All unfinished requests, oldest first."""
        return list(dict.fromkeys(self._requests.values()))

    def add(self, request: Request) -> None:
        """Queue a request, whose prompts and new tokens fit the model."""
        for sequence in request.sequences:
            self._requests[id(sequence)] = request
        self._scheduler.add(request)

    @torch.inference_mode()
    def cancel(self, request: Request) -> None:
        """Drop a request, if it is unfinished, and free its slots."""
        leaving = {id(s) for s in request.sequences}
        self._scheduler.remove_waiting(request)
        self._leave(leaving)

    def withdraw(self) -> list[Request]:
        """Remove and return the requests that have not begun, oldest first, so that other weights can answer them."""
        withdrawn = [request for request in self.requests if not request.begun]
        for request in withdrawn:
            self.cancel(request)
        return withdrawn

    def release(self) -> None:
        """Free the cache's memory while nothing runs; it grows again as needed."""
        assert not self._scheduler.running, "running sequences need the cache"
        self._graphs.clear()
        self._cache = slots_of(self.loaded, self._scheduler.max_num_seqs)
        self.forget()

    def forget(self) -> None:
        """Clear the prefix cache after a change of the weights; nothing may be running."""
        self._prefixes.clear()

    def reset(self) -> None:
        """Drop all requests and caches after a step that failed."""
        self._scheduler = replace(self._scheduler, running=[], waiting=deque())
        self._requests.clear()
        self.release()

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Advance every running sequence by one token or one chunk of its prompt; return the finished requests."""
        self._make_room()
        admitted = self._scheduler.admit(self.policy_version, draining=self.draining, count_cached=self._count_cached)
        self._empty_long()
        for slot in admitted:
            self._reuse(slot)
        self._settle()
        decoding, prefill = self._scheduler.plan()
        if not (decoding or prefill):
            return []
        self._activate()
        self._reserve()
        batch = batch_of(self._cache, decoding, prefill, self.loaded.device)
        running = self._scheduler.running
        rows = [row for row, chunk in enumerate(batch.order) if _completes_prompt(running[chunk.slot], chunk)]
        keep_K = batch.last_K if len(rows) == len(batch.order) else batch.last_K[rows or [0]]
        scored = [(running[chunk.slot], chunk) for chunk in prefill if running[chunk.slot].to_score]
        if scored:
            keep_K = torch.cat([keep_K, batch.outputs_of(chunk for _, chunk in scored)])
        if self._graphs.takes(batch, len(running)):
            logits_KV = self._graphs.logits(batch)
        else:
            logits_KV = self.loaded.sampler_logits(batch, keep_K)
        if scored:
            score(logits_KV[len(keep_K) - sum(len(chunk.token_ids) for _, chunk in scored) :], scored)
        for chunk in batch.order:
            self._store(running[chunk.slot], chunk, batch)
        for chunk in prefill:
            if chunk.node is None and _completes_prompt(running[chunk.slot], chunk):
                self._keep(chunk.slot)
        sampling = [running[batch.order[row].slot] for row in rows]
        return self._record(sampling, sample(logits_KV[: len(rows)], sampling)) if rows else []

    def _count_cached(self, sequence: Sequence) -> int:
        """Cached tokens of a prompt; on the plain path it counts as cached, since it gains nothing by waiting."""
        if self.loaded.plain is not None:
            return len(sequence.prefill_ids)
        return self._prefixes.find(_ids(sequence.prefill_ids[:-1]))

    def _reuse(self, slot: int) -> None:
        """Use the cached beginning of a prompt; its last token is always computed, for the logits after it."""
        sequence = self._scheduler.running[slot]
        beginning = _ids(sequence.prefill_ids[:-1])
        found = self._prefixes.find(beginning)
        if found < _MIN_REUSED_TOKENS or sequence.to_score:
            found = 0
        if len(sequence.prefill_ids) > self._short:
            sequence.node = self._prefixes.enter(beginning[:found])
        elif found:
            self._load(slot, beginning[:found])
        sequence.num_cached = found
        if not sequence.token_ids:
            sequence.num_reused = found

    def _store(self, sequence: Sequence, chunk: Chunk, batch: StepBatch | PlainBatch) -> None:
        sequence.num_cached = chunk.end
        if chunk.slot in batch.computed:
            assert chunk.node is not None, "tokens without a node are in a slot"
            sequence.node = self._prefixes.extend(chunk.node, _ids(chunk.token_ids), batch.computed[chunk.slot])

    def _settle(self) -> None:
        """As sequences begin to decode, copy what they share with no others to their slots, if there is memory."""
        scheduler = self._scheduler
        for slot, shared in scheduler.budget.settled(scheduler.running).items():
            sequence = scheduler.running[slot]
            node, sequence.node = sequence.node, shared if shared.end else None
            if node is None or not scheduler.budget.fits(scheduler.running):
                sequence.node = node
            elif shared is not node:
                tokens, end = _cached(sequence), shared.end
                self._load(slot, tokens[end:], shared)
                if end:
                    self._prefixes.enter(tokens[:end])
                self._prefixes.leave(node)

    def _load(self, slot: int, tokens: Ids, after: Node | None = None) -> None:
        assert isinstance(self._cache, SlotCache), "the plain path finds none"
        self._reserve()
        self._prefixes.load(tokens, self._cache, slot, after)

    def _reserve(self) -> None:
        running = self._scheduler.running
        self._cache.reserve(len(running), self._scheduler.budget.longest_slot(running))

    def _empty_long(self) -> None:
        running = self._scheduler.running
        most = self._scheduler.budget.slot_tokens(running)
        for slot, sequence in enumerate(running):
            if sequence.num_in_slot >= most:
                self._empty(slot)

    def _empty(self, slot: int) -> None:
        assert isinstance(self._cache, SlotCache), "the plain path has room for a whole sequence in each slot"
        sequence = self._scheduler.running[slot]
        tokens, in_slot = _cached(sequence), sequence.num_in_slot
        node = self._prefixes.enter(tokens)
        if sequence.node is not None:
            self._prefixes.leave(sequence.node)
        known = node.end
        if known < len(tokens):
            first = len(tokens) - in_slot
            node = self._prefixes.extend(node, tokens[known:], self._cache.part(slot, known - first, in_slot))
        sequence.node = node

    def _keep(self, slot: int) -> None:
        """Keep the tokens of a sequence in the prefix cache; those of the plain path cannot be shared."""
        sequence = self._scheduler.running[slot]
        if sequence.node is not None:
            self._empty(slot)
        elif sequence.num_cached >= _MIN_REUSED_TOKENS and isinstance(self._cache, SlotCache):
            self._prefixes.keep(_cached(sequence), self._cache, slot)

    def _record(self, sampling: list[Sequence], sampled: Sampled) -> list[Request]:
        eos = self.loaded.eos_token_ids
        streamed: dict[int, tuple[Request, list[Delta]]] = {}
        for i, sequence in enumerate(sampling):
            sequence.add(sampled.token_ids[i], sampled.logprobs[i], sampled.top_logprobs[i], eos)
            request = self._requests[id(sequence)]
            if request.stream:
                streamed.setdefault(id(request), (request, []))[1].append(Delta.newest(sequence))
        for request, deltas in streamed.values():
            request.listener.on_deltas(deltas)
        left = [s for s in sampling if s.finish_reason is not None]
        requests = dict.fromkeys(self._requests[id(s)] for s in left)
        for slot, sequence in enumerate(self._scheduler.running):
            if sequence.finish_reason is not None:
                self._keep(slot)
        self._leave({id(s) for s in left})
        return [request for request in requests if request.finished]

    def _make_room(self) -> None:
        """Interrupt sequences, which continue later, while the others need the memory of their keys and values."""
        while (sequence := self._scheduler.to_interrupt()) is not None:
            if not self._interrupted:
                logger.warning(
                    "the keys and values of %d running chats need more memory than --kv_cache_mb gives, which is "
                    "enough for %d tokens: some chats wait, and what was computed of them is computed again",
                    len(self._scheduler.running),
                    self._scheduler.budget.max_tokens,
                )
            self._interrupted = True
            self._vacate({id(sequence)})
            sequence.interrupt()
            self._scheduler.waiting.appendleft((self._requests[id(sequence)], sequence))

    def _leave(self, leaving: set[int]) -> None:
        for key in leaving:
            self._requests.pop(key, None)
        if leaving:
            self._vacate(leaving)

    def _vacate(self, leaving: set[int]) -> None:
        for sequence in self._scheduler.running:
            if id(sequence) in leaving and sequence.node is not None:
                self._prefixes.leave(sequence.node)
        for source, target, length in self._scheduler.remove(leaving):
            self._cache.move(source, target, length)
        self._cache.reserve(len(self._scheduler.running), 0)  # frees what has left the plain path


def _short_tokens(loaded: LoadedModel, wanted: int | None) -> int:
    """Elsewhere than on a CPU all prompts are copied, since attention is called for each node of the prefix cache.

    On the plain path, nothing is anywhere else than in slots.
    """
    if loaded.plain is not None:
        return loaded.max_seq_length
    if wanted:
        return wanted
    if loaded.device.type != "cpu":
        return loaded.max_seq_length
    largest = max(each.token_values for each in loaded.heads) * loaded.dtype.itemsize
    return max(1, _COPIED_BYTES // largest)


def _ids(token_ids: list[int]) -> Ids:
    return np.array(token_ids, dtype=np.int64)


def _cached(sequence: Sequence) -> Ids:
    return _ids((sequence.prompt_ids + sequence.token_ids)[: sequence.num_cached])


def _completes_prompt(sequence: Sequence, chunk: Chunk) -> bool:
    return chunk.end >= len(sequence.prefill_ids)

"""Decide which sequences run, in which slots, and how many tokens each adds to the next step; no tensors.

Invariants: `running[i]` sits in cache slot i; sequences that decode come before those whose prompt is not yet
wholly cached; of the latter at most one has begun, because prompts are taken in order.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from nat.backend.inference.kv_budget import KvBudget
from nat.backend.inference.prefix_cache import Node
from nat.backend.inference.sequence import Request, Sequence

MIN_SAVED_TOKENS = 32
"""A sequence waits a step if that saves computing more prompt tokens than these."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive tokens of one sequence that enter the cache in this step."""

    slot: int
    start: int
    token_ids: list[int]
    node: Node | None = None
    """The last node of the prefix cache that the sequence uses; None if all of its tokens are in its slot."""

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    @property
    def cell(self) -> int:
        """Where in the slot the first token goes, if it goes there."""
        return self.start - (0 if self.node is None else self.node.end)


@dataclass
class Scheduler:
    """First come, first served; every decoding sequence advances in each step, prompts fill what room is left."""

    max_num_seqs: int
    max_step_tokens: int
    budget: KvBudget = field(default_factory=lambda: KvBudget(None, 0))
    max_scored_tokens: int = 2**31
    """Tokens of prompts that a step may score, which takes the logits of each."""
    running: list[Sequence] = field(default_factory=list)
    waiting: deque[tuple[Request, Sequence]] = field(default_factory=deque)

    def add(self, request: Request) -> None:
        self.waiting.extend((request, sequence) for sequence in request.sequences)

    def remove_waiting(self, request: Request) -> None:
        self.waiting = deque(pair for pair in self.waiting if pair[0] is not request)

    def admit(
        self, policy_version: str, *, draining: bool, count_cached: Callable[[Sequence], int] = lambda _: 0
    ) -> list[int]:
        """Give free slots to waiting sequences and return the slots; while draining, only begun requests get one.

        A prompt waits if one that is computed in this step has the same beginning, which it can then reuse. If the
        memory does not suffice for a prompt, it and those after it wait.
        `count_cached` returns how many leading tokens of a prompt are cached.
        """
        computing = _Prompts(sequence for sequence in self.running if not sequence.prefilled)
        first = len(self.running)
        held: list[tuple[Request, Sequence]] = []
        while self.waiting and len(self.running) < self.max_num_seqs:
            request, sequence = self.waiting.popleft()
            waits = not sequence.to_score and computing.will_save(sequence, count_cached)
            if (draining and not request.begun) or waits:
                held.append((request, sequence))
                continue
            if not self.budget.fits(self.running, sequence):
                held.append((request, sequence))
                break
            request.policy_version = request.policy_version or policy_version
            self.running.append(sequence)
            computing.add(sequence)
        self.waiting.extendleft(reversed(held))
        return list(range(first, len(self.running)))

    def to_interrupt(self) -> Sequence | None:
        """The running sequence with the fewest tokens, if the others need its memory."""
        if self.budget.fits(self.running):
            return None
        return min(self.running, key=lambda sequence: sequence.num_cached)

    def plan(self) -> tuple[list[Chunk], list[Chunk]]:
        """The next step's chunks: of the sequences that decode, and of prompts."""
        decoding: list[Chunk] = []
        prefill: list[Chunk] = []
        room, scored_room = self.max_step_tokens, self.max_scored_tokens
        for slot, sequence in enumerate(self.running):
            if sequence.prefilled:
                decoding.append(Chunk(slot, sequence.num_cached, sequence.token_ids[-1:], sequence.node))
                room -= 1
            elif room > 0 or not (decoding or prefill):
                most = max(room, 1)
                if sequence.to_score:
                    most = max(1, min(most, scored_room))
                new = sequence.prefill_ids[sequence.num_cached : sequence.num_cached + most]
                prefill.append(Chunk(slot, sequence.num_cached, new, sequence.node))
                room -= len(new)
                if sequence.to_score:
                    scored_room -= len(new)
                    room = room if scored_room > 0 else 0
        return decoding, prefill

    def remove(self, leaving: set[int]) -> list[tuple[int, int, int]]:
        """Take sequences (by `id`) out of their slots and close the gaps; decoding sequences stay in front.

        Gives what to copy: from which slot, to which, and how many positions.
        """
        old_slot = {id(s): slot for slot, s in enumerate(self.running)}
        decoding = [s for s in self.running if s.prefilled]
        others = [s for s in self.running if not s.prefilled and id(s) not in leaving]
        self.running = [*_compacted(decoding, leaving), *others]
        return [
            (old_slot[id(s)], slot, s.num_in_slot)
            for slot, s in enumerate(self.running)
            if s.num_in_slot and old_slot[id(s)] != slot
        ]


class _Prompts:
    """Prompts that are being computed, which waiting prompts are compared with."""

    def __init__(self, sequences: Iterable[Sequence]) -> None:
        self._whole: set[tuple[int, ...]] = set()
        self._beginnings: set[tuple[int, ...]] = set()
        for sequence in sequences:
            self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        if len(sequence.prefill_ids) > MIN_SAVED_TOKENS:
            self._whole.add(tuple(sequence.prefill_ids))
            self._beginnings.add(tuple(sequence.prefill_ids[:MIN_SAVED_TOKENS]))

    def will_save(self, sequence: Sequence, count_cached: Callable[[Sequence], int]) -> bool:
        """True if the sequence could reuse many more tokens a step later."""
        prompt = sequence.prefill_ids
        if len(prompt) <= MIN_SAVED_TOKENS or tuple(prompt[:MIN_SAVED_TOKENS]) not in self._beginnings:
            return False
        found = count_cached(sequence)
        return found < MIN_SAVED_TOKENS or (len(prompt) - found > MIN_SAVED_TOKENS and tuple(prompt) in self._whole)


def _compacted(sequences: list[Sequence], leaving: set[int]) -> list[Sequence]:
    """Fill each gap with the last remaining sequence, so that few caches are copied."""
    kept = list(sequences)
    for slot in reversed(range(len(kept))):
        if id(kept[slot]) in leaving:
            last = kept.pop()
            if slot < len(kept):
                kept[slot] = last
    return kept

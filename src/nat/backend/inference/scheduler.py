"""Decide which sequences run, in which slots, and how many tokens each adds to the next step; no tensors.

Invariants: `running[i]` sits in cache slot i; sequences that decode come before those whose prompt is not yet
wholly cached; of the latter at most one has begun, because prompts are taken in order.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field

from nat.backend.inference.prefix_cache import Node, num_tokens
from nat.backend.inference.sequence import Request, Sequence

MIN_SAVED_TOKENS = 32
"""A sequence waits a step if that saves computing more prompt tokens than these."""


_MAX_REPORTED = 10_000_000
"""Tokens beside the sampled ones that all running sequences may report together; each takes about 100 bytes."""

_MOST_COPIED = 4
"""Times a short prompt; to copy more would take longer than an answer gains, and twice the memory."""


@dataclass(frozen=True)
class KvBudget:
    """Bounds what running sequences keep; what only the prefix cache keeps has a bound of its own."""

    max_tokens: int | None
    """None: no bound."""
    short_tokens: int
    """Prompts up to this length are in slots."""
    state_tokens: int | None = None
    """On the plain path, where a slot is as long as its sequence: the state of a sequence, as tokens of its memory."""

    def fits(self, running: Sequences[Sequence], joining: Sequence | None = None) -> bool:
        """True if the prompts and next tokens of these sequences fit; a sequence alone always does."""
        sequences = [*running] if joining is None else [*running, joining]
        if len(sequences) < 2:
            return True
        if joining is not None and sum(s.num_reported for s in sequences) > _MAX_REPORTED:
            return False
        if self.max_tokens is None:
            return True
        at_most = 2 * len(sequences) * (max(map(_num_needed, sequences)) + (self.state_tokens or 0))
        return at_most <= self.max_tokens or self._count(sequences) <= self.max_tokens

    def _count(self, sequences: Sequences[Sequence]) -> int:
        """Tokens in nodes, each node once, and in slots, which on the packed path are all as long as the longest."""
        if self.state_tokens is not None:
            return sum(map(_num_needed, sequences)) + self.state_tokens * len(sequences)
        coming = sum(_num_own(s) for s in sequences if not self._in_slot(s))
        in_nodes = num_tokens(s.node for s in sequences if s.node is not None)
        return in_nodes + coming + self.longest_slot(sequences) * len(sequences)

    def longest_slot(self, sequences: Sequences[Sequence]) -> int:
        """Most tokens that one of these sequences needs in its slot before it samples its next one."""
        return max(self._in_slots(sequences), default=0)

    def slot_tokens(self, sequences: Sequences[Sequence]) -> int:
        """Most tokens to leave in a slot: about four times the mean, since all slots are as long."""
        own = self._in_slots(sequences)
        four_means = 4 * sum(own) // max(1, len(own))
        return max(2 * self.short_tokens, min(2 * _MOST_COPIED * self.short_tokens, four_means))

    def settled(self, running: Sequences[Sequence]) -> dict[int, Node]:
        """By slot, the last node that a sequence keeps as it begins to decode; what follows goes to its slot.

        More than short prompts go there only if the slots, all as long as the longest, are then full to two thirds.
        """
        beginning = {i: s.node for i, s in enumerate(running) if s.prefilled and s.node and not s.num_in_slot}
        if not beginning:
            return {}
        users = Counter(node for s in running if s.node for node in s.node.path)
        longest = _MOST_COPIED * self.short_tokens
        copied = [node.end - self._shared(node, users, longest).end for node in beginning.values()]
        own = self._in_slots(running)
        full = 3 * (sum(own) + sum(copied)) >= 2 * len(own) * max(own + copied)
        most = longest if full else self.short_tokens
        return {slot: self._shared(node, users, most) for slot, node in beginning.items()}

    def _shared(self, last: Node, users: Counter[Node], most: int) -> Node:
        """The last node that saves reading more than a short prompt again, or before `most` tokens."""
        node = last
        while (before := node.parent) is not None and last.end - before.end <= most:
            if (users[node] - 1) * len(node.tokens) > self.short_tokens:
                break
            node = before
        return node

    def _in_slots(self, sequences: Sequences[Sequence]) -> list[int]:
        return [_num_own(s) for s in sequences if self._in_slot(s)]

    def _in_slot(self, sequence: Sequence) -> bool:
        return sequence.prefilled or len(sequence.prefill_ids) <= self.short_tokens


def _num_own(sequence: Sequence) -> int:
    return _num_needed(sequence) - (0 if sequence.node is None else sequence.node.end)


def _num_needed(sequence: Sequence) -> int:
    """Tokens of the sequence before it samples the next one, or the one after it."""
    return max(len(sequence.prefill_ids), sequence.num_cached + 1)


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

"""How much memory the running sequences need, for keys and values and for what is reported of each token."""

from collections import Counter
from collections.abc import Sequence as Several
from dataclasses import dataclass

from nat.backend.inference.prefix_cache import Node, num_tokens
from nat.backend.inference.sequence import Sequence

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

    def fits(self, running: Several[Sequence], joining: Sequence | None = None) -> bool:
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

    def _count(self, sequences: Several[Sequence]) -> int:
        """Tokens in nodes, each node once, and in slots, which on the packed path are all as long as the longest."""
        if self.state_tokens is not None:
            return sum(map(_num_needed, sequences)) + self.state_tokens * len(sequences)
        coming = sum(_num_own(s) for s in sequences if not self._in_slot(s))
        in_nodes = num_tokens(s.node for s in sequences if s.node is not None)
        return in_nodes + coming + self.longest_slot(sequences) * len(sequences)

    def longest_slot(self, sequences: Several[Sequence]) -> int:
        """Most tokens that one of these sequences needs in its slot before it samples its next one."""
        return max(self._in_slots(sequences), default=0)

    def slot_tokens(self, sequences: Several[Sequence]) -> int:
        """Most tokens to leave in a slot: about four times the mean, since all slots are as long."""
        own = self._in_slots(sequences)
        four_means = 4 * sum(own) // max(1, len(own))
        return max(2 * self.short_tokens, min(2 * _MOST_COPIED * self.short_tokens, four_means))

    def settled(self, running: Several[Sequence]) -> dict[int, Node]:
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

    def _in_slots(self, sequences: Several[Sequence]) -> list[int]:
        return [_num_own(s) for s in sequences if self._in_slot(s)]

    def _in_slot(self, sequence: Sequence) -> bool:
        return sequence.prefilled or len(sequence.prefill_ids) <= self.short_tokens


def _num_own(sequence: Sequence) -> int:
    return _num_needed(sequence) - (0 if sequence.node is None else sequence.node.end)


def _num_needed(sequence: Sequence) -> int:
    """Tokens of the sequence before it samples the next one, or the one after it."""
    return max(len(sequence.prefill_ids), sequence.num_cached + 1)

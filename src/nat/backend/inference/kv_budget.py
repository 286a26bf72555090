"""How much memory the running sequences need, for keys and values and for what is reported of each token."""

from collections.abc import Sequence as Several
from dataclasses import dataclass

from nat.backend.inference.prefix_cache import num_tokens
from nat.backend.inference.sequence import Sequence

_MAX_REPORTED = 10_000_000
"""Tokens beside the sampled ones that all running sequences may report together; each takes about 100 bytes."""


@dataclass(frozen=True)
class KvBudget:
    """Bounds what running sequences keep; what only the prefix cache keeps has a bound of its own."""

    max_tokens: int | None
    """None: no bound."""
    short_tokens: int
    """Prompts up to this length are in slots."""

    def fits(self, running: Several[Sequence], joining: Sequence | None = None) -> bool:
        """True if the prompts and next tokens of these sequences fit; a sequence alone always does."""
        sequences = [*running] if joining is None else [*running, joining]
        if len(sequences) < 2:  # noqa: PLR2004 - two are not alone
            return True
        if joining is not None and sum(s.num_reported for s in sequences) > _MAX_REPORTED:
            return False
        if self.max_tokens is None:
            return True
        at_most = 2 * len(sequences) * max(map(_num_needed, sequences))
        return at_most <= self.max_tokens or self._count(sequences) <= self.max_tokens

    def _count(self, sequences: Several[Sequence]) -> int:
        """Tokens in nodes, each node once, and in slots, which are all as long as the longest."""
        slot, coming = 0, 0
        for sequence in sequences:
            own = _num_needed(sequence) - (0 if sequence.node is None else sequence.node.end)
            if sequence.prefilled or len(sequence.prefill_ids) <= self.short_tokens:
                slot = max(slot, own)
            else:
                coming += own
        return num_tokens(s.node for s in sequences if s.node is not None) + coming + slot * len(sequences)


def _num_needed(sequence: Sequence) -> int:
    """Tokens of the sequence before it samples the next one, or the one after it."""
    return max(len(sequence.prefill_ids), sequence.num_cached + 1)

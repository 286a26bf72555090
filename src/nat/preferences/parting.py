"""Find the answer at which two generations part, given the same tokens or messages before it.

Where a tool, a user or an opponent said something different first, the two answers after it were given in different
states, and neither is preferred to the other.
"""

import json
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from nat.preferences.pairs import SkipCause
from nat.wire.training import TrainingRow

Marked = tuple[tuple[Hashable, bool], ...]
"""The tokens or messages of a row or conversation, and whether each was sampled, or is one to learn from."""


class Parting(NamedTuple):
    """Where two generations part."""

    own: int
    """Which row or conversation of the one generation."""
    other: int
    """Which one of the other generation."""
    at: int
    """Index of the first token or message that differs."""


def marked_tokens(row: TrainingRow) -> Marked:
    """The tokens of a row."""
    targets = set(row.targets)
    return tuple((token, place in targets) for place, token in enumerate(row.token_ids))


def marked_messages(
    messages: Sequence[Mapping[str, Any]], sampled: Collection[int], tools: str | None = None
) -> Marked:
    """`sampled` has the places of sampled messages. Tools are part of the prompt; the random ids of calls are not."""

    def words(message: Mapping[str, Any]) -> str:
        calls = [
            {key: call[key] for key in call if key not in {"id", "index"}} for call in message.get("tool_calls") or ()
        ]
        kept = {key: value for key, value in message.items() if key != "tool_call_id" and value}
        return json.dumps(kept | {"tool_calls": calls}, sort_keys=True, default=str)

    return tuple(((tools, words(message)), place in sampled) for place, message in enumerate(messages))


def parting(a: Marked, b: Marked, *, whole: bool = False) -> int | None:
    """Position of the first token or message that differs, if it was sampled; None if a prompt differs before.

    An answer that ends at a token may be the beginning of the other, so that only one of the two has that token; a
    message is a `whole` answer.
    """
    at = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    sampled = [at < len(each) and each[at][1] for each in (a, b)]
    within = not whole and at > 0 and a[at - 1][1]
    return at if all(sampled) or (within and any(sampled)) else None


def first_parting(own: Sequence[Marked], others: Sequence[Marked], *, whole: bool = False) -> Parting | SkipCause:
    """Where two generations part: in the first of their rows or conversations that do; or why none does.

    What both generations have is not compared with other answers to its prompt.
    """
    shared = Counter(own) & Counter(others)
    mine, its = _unshared(own, shared), _unshared(others, shared)
    for place, one in mine:
        for other_place, other in its:
            if (at := parting(one, other, whole=whole)) is not None:
                return Parting(place, other_place, at)
    return SkipCause.DIFFERENT_PROMPTS if mine or its else SkipCause.EQUAL_RESPONSES


def _unshared(sequences: Sequence[Marked], shared: Counter[Marked]) -> list[tuple[int, Marked]]:
    """The sequences with their places, without those that both generations have."""
    left, found = shared.copy(), []
    for place, sequence in enumerate(sequences):
        left[sequence] -= 1
        if left[sequence] < 0:
            found.append((place, sequence))
    return found

"""Find the answer at which two generations part, given the same tokens or messages before it.

Where a tool, a user or an opponent said something different first, the two answers after it were given in different
states, and neither is preferred to the other.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from nat.wire.training import TrainingRow

Message = Mapping[str, Any]


def parting(row_a: TrainingRow, row_b: TrainingRow) -> int | None:
    """Position of the first sampled token at which two rows differ, which perhaps only one of them has.

    None if they are equal, or a prompt differs before. An answer that ends at the token may be the beginning of the
    other.
    """
    tokens_a, tokens_b = _marked(row_a), _marked(row_b)
    token = _shared(tokens_a, tokens_b)
    sampled = [token < len(tokens) and tokens[token][1] for tokens in (tokens_a, tokens_b)]
    within = token > 0 and tokens_a[token - 1][1]
    return token if all(sampled) or (within and any(sampled)) else None


def first_parting(rows_a: Sequence[TrainingRow], rows_b: Sequence[TrainingRow]) -> tuple[tuple[int, int], int] | None:
    """The places of the first rows of two generations that part at an answer, and where; None if there are none.

    A row that both have is not compared with other answers to its prompt.
    """
    shared = Counter(map(_marked, rows_a)) & Counter(map(_marked, rows_b))
    for place_a, row_a in _unshared(rows_a, shared):
        for place_b, row_b in _unshared(rows_b, shared):
            if (token := parting(row_a, row_b)) is not None:
                return (place_a, place_b), token
    return None


def _unshared(
    rows: Sequence[TrainingRow], shared: Counter[tuple[tuple[int, bool], ...]]
) -> Iterator[tuple[int, TrainingRow]]:
    """The rows with their places, without those that both generations have."""
    left = shared.copy()
    for place, row in enumerate(rows):
        left[_marked(row)] -= 1
        if left[_marked(row)] < 0:
            yield place, row


def message_parting(
    messages_a: Sequence[Message],
    sampled_a: Collection[int],
    messages_b: Sequence[Message],
    sampled_b: Collection[int],
) -> int | None:
    """The place of the first message that differs, if both models sampled it; None if the prompts differ before.

    `sampled_…` has the places of the messages that the model sampled. The ids of tool calls, which are random, are not
    compared.
    """
    place = _shared(_without_ids(messages_a), _without_ids(messages_b))
    return place if place in sampled_a and place in sampled_b else None


def same_messages(messages_a: Sequence[Message], messages_b: Sequence[Message]) -> bool:
    """True if two conversations differ at most in the ids of tool calls."""
    return _without_ids(messages_a) == _without_ids(messages_b)


def _marked(row: TrainingRow) -> tuple[tuple[int, bool], ...]:
    """Each token, and whether it was sampled, or is one to learn from."""
    targets = set(row.targets)
    return tuple((token, place in targets) for place, token in enumerate(row.token_ids))


def _shared(a: Sequence[object], b: Sequence[object]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((place for place, (x, y) in pairs if x != y), min(len(a), len(b)))


def _without_ids(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in message.items() if key not in {"tool_calls", "tool_call_id"} and value}
        | {"tool_calls": [_call_without_id(call) for call in message.get("tool_calls") or ()]}
        for message in messages
    ]


def _call_without_id(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in call.items() if key not in {"id", "index"}}

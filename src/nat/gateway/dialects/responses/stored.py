"""What later calls of a rollout may name by its id: earlier responses and their items. Pure."""

from dataclasses import dataclass, field
from typing import cast

from nat.gateway.dialects import Body, Memory, Untranslatable
from nat.gateway.dialects.content import listed, text_at

_KEY = "responses"


@dataclass(frozen=True, slots=True)
class Turn:
    """A response with what was asked for it; those before it are found by `previous`."""

    previous: str | None
    items: list[Body]
    """The input, as the agent gave it."""
    message: Body
    """The answer as a chat's message."""


@dataclass(frozen=True, slots=True)
class _Stored:
    turns: dict[str, Turn] = field(default_factory=dict)
    items: dict[str, Body] = field(default_factory=dict)


def input_items(body: Body) -> list[Body]:
    """The items of a request; a text is the user's message."""
    given = body.get("input")
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return listed(given, "input")


def store(memory: Memory, response: Body, asked: Body, message: Body) -> None:
    """Keep a response and its items, unless the agent does not want that."""
    if asked.get("store") is False:
        return
    stored = cast("_Stored", memory.setdefault(_KEY, _Stored()))
    stored.turns[response["id"]] = Turn(asked.get("previous_response_id"), input_items(asked), message)
    stored.items.update({item["id"]: item for item in response["output"]})


def earlier_turns(memory: Memory, body: Body) -> list[Turn]:
    """The turns that a request goes on from, oldest first."""
    turns: list[Turn] = []
    name = body.get("previous_response_id")
    while name is not None:
        turn = _stored(memory).turns.get(text_at(name, "previous_response_id"))
        if turn is None:
            raise Untranslatable(
                f"previous_response_id: {name!r} is no response of this rollout that was stored; send the whole input"
            )
        turns.append(turn)
        name = turn.previous
    return turns[::-1]


def referred_item(memory: Memory, item_id: object, place: str) -> Body:
    """The item of an earlier response."""
    item = _stored(memory).items.get(str(item_id))
    if item is None:
        raise Untranslatable(f"{place}: {item_id!r} is no item of this rollout that was stored; send the item itself")
    return item


def _stored(memory: Memory) -> _Stored:
    return cast("_Stored", memory.get(_KEY, _Stored()))

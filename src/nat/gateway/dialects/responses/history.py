"""Earlier responses of a rollout, which a request may continue by their id. Pure."""

from nat.gateway.dialects import Body, DialectMemory, Turn, Untranslatable
from nat.gateway.dialects.content import listed, text_at


def input_items(body: Body) -> list[Body]:
    """The items of a request; a text is the user's message."""
    given = body.get("input")
    if given is None:
        return []
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return listed(given, "input")


def store(memory: DialectMemory, response: Body, request: Body, message: Body) -> None:
    """Keep a response and its items, unless the request has `store: false`."""
    if request.get("store") is False:
        return
    memory.turns[response["id"]] = Turn(request.get("previous_response_id"), input_items(request), message)
    memory.items.update({item["id"]: item for item in response["output"]})


def earlier_turns(memory: DialectMemory, body: Body) -> list[Turn]:
    """The turns that a request continues, oldest first."""
    turns: list[Turn] = []
    name = body.get("previous_response_id")
    while name is not None:
        turn = memory.turns.get(text_at(name, "previous_response_id"))
        if turn is None:
            raise Untranslatable(
                f"previous_response_id: {name!r} is not a stored response of this rollout; send the whole input"
            )
        turns.append(turn)
        name = turn.previous
    return turns[::-1]


def referred_item(memory: DialectMemory, item_id: object, place: str) -> Body:
    """The item of an earlier response."""
    item = memory.items.get(str(item_id))
    if item is None:
        raise Untranslatable(f"{place}: {item_id!r} is not a stored item of this rollout; send the item itself")
    return item

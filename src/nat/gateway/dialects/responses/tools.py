"""The items and tools of a request, and the earlier responses of its rollout, which it may continue by id. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from nat.gateway.dialects import Body, DialectMemory, Turn, Untranslatable
from nat.gateway.dialects.content import function_tool, listed, named_choice, object_at, text_at, unknown_type

_RUN_BY_THE_VENDOR = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search")
_KINDS = ("function", "custom", "namespace")
_TEXT_ONLY = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call."""

    spec: Body
    namespace: str | None

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    @property
    def custom(self) -> bool:
        return bool(self.spec["type"] == "custom")

    @property
    def chat_name(self) -> str:
        return chat_name(self.name, self.namespace)

    def as_function(self) -> Body:
        """The tool as a chat has it."""
        spec = self.spec
        if self.custom:
            return function_tool(self.chat_name, spec.get("description"), _TEXT_ONLY)
        return function_tool(self.chat_name, spec.get("description"), spec.get("parameters"), strict=spec.get("strict"))


def chat_name(name: str, namespace: str | None) -> str:
    """The name of a tool in a chat; it does not depend on other tools."""
    return f"{namespace}__{name}" if namespace else name


def tools_of(body: Body, memory: DialectMemory) -> dict[str, Tool]:
    """All tools of a request by their names in the chat, including those that its items add."""
    tools = list(_read(body.get("tools") or [], "tools", None))
    items = [item for turn in earlier_turns(memory, body) for item in turn.items] + input_items(body)
    for number, item in enumerate(items):
        if item.get("type") == "additional_tools":
            tools += _read(item.get("tools"), f"input.{number}.tools", None)
    return {tool.chat_name: tool for tool in tools}


def tool_fields(body: Body, tools: dict[str, Tool]) -> Body:
    """Tools and the tool choice; empty without a tool, since servers refuse a choice without tools."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = [_named(one, tools) for one in listed(choice.get("tools"), "tool_choice.tools")]
        tools = {name: tool for name, tool in tools.items() if name in allowed}
        choice = choice.get("mode", "auto")
    fields: Body = {"tools": [tool.as_function() for tool in tools.values()]}
    if isinstance(choice, dict):
        fields["tool_choice"] = named_choice(_named(choice, tools))
    elif choice is not None:
        fields["tool_choice"] = text_at(choice, "tool_choice")
    if body.get("parallel_tool_calls") is not None:
        fields["parallel_tool_calls"] = body["parallel_tool_calls"]
    return fields if tools else {}


def _read(specs: object, place: str, namespace: str | None) -> Iterator[Tool]:
    for number, spec in enumerate(listed(specs, place)):
        where, kind = f"{place}.{number}", spec.get("type")
        if kind in ("function", "custom"):
            text_at(spec.get("name"), f"{where}.name")
            yield Tool(spec, namespace)
        elif kind == "namespace":
            yield from _read(spec.get("tools"), f"{where}.tools", text_at(spec.get("name"), f"{where}.name"))
        elif not str(kind).startswith(_RUN_BY_THE_VENDOR):
            raise unknown_type(kind, _KINDS, f"{where}.type", "describe the tool as a function")


def _named(choice: Body, tools: dict[str, Tool]) -> str:
    name = chat_name(str(object_at(choice, "tool_choice").get("name")), choice.get("namespace"))
    if name not in tools:
        raise Untranslatable(f"tool_choice: {name!r} is none of the request's tools")
    return name


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

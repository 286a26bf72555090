"""The parts of an answer as output items. Pure."""

from nat.gateway.dialects import Body
from nat.gateway.dialects.answer_parts import AnswerParts, Part
from nat.gateway.dialects.responses.tools import Tool
from nat.gateway.dialects.responses.transcript import sealed
from nat.gateway.dialects.sampled import as_object

ENCRYPTED = "reasoning.encrypted_content"
_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}


class ItemWriter:
    """Writes the items of one answer: begun without their text, and whole."""

    def __init__(self, asked: Body, answer: AnswerParts, tools: dict[str, Tool]) -> None:
        self._answer = answer
        self._tools = tools
        self._seals = ENCRYPTED in (asked.get("include") or ())

    def is_custom(self, part: Part) -> bool:
        """Whether a call's arguments are one text to the agent."""
        tool = self._tools.get(part.name)
        return tool is not None and tool.custom

    def id(self, part: Part) -> str:
        """By its beginning agents tell what an item is."""
        kind = "ctc" if self.is_custom(part) else _PREFIXES[part.kind]
        return f"{kind}_{self._answer.id}_{part.number}"

    def begun(self, part: Part) -> Body:
        """The item as it stands before its first text."""
        item = self._item(part, "", "in_progress")
        return item | ({"content": []} if part.kind != "call" else {})

    def whole(self, part: Part, status: str) -> Body:
        """The item with all its text."""
        return self._item(part, part.text, status)

    def _item(self, part: Part, text: str, status: str) -> Body:
        head = {"id": self.id(part), "status": status}
        match part.kind:
            case "text":
                return {"type": "message", **head, "role": "assistant", "content": [content_part(part, text)]}
            case "reasoning":
                seal = {"encrypted_content": sealed(part.origin, text)} if self._seals else {}
                return {"type": "reasoning", **head, "summary": [], "content": [content_part(part, text)], **seal}
            case "call":
                return head | self._call(part, text)

    def _call(self, part: Part, arguments: str) -> Body:
        tool = self._tools.get(part.name)
        called: Body = {"call_id": part.call_id, "name": part.name if tool is None else tool.name}
        if tool is not None and tool.namespace:
            called["namespace"] = tool.namespace
        if tool is not None and tool.custom:
            return {"type": "custom_tool_call", "input": custom_input(arguments), **called}
        return {"type": "function_call", "arguments": arguments, **called}


def content_part(part: Part, text: str) -> Body:
    """The one content part that an item of text or thinking has."""
    if part.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def custom_input(arguments: str) -> str:
    """The text that a model gave to a custom tool; all that it wrote if it did not keep to the form."""
    text = as_object(arguments).get("input")
    return text if isinstance(text, str) else arguments

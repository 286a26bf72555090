"""A chat's answer as a response, whole and in events. Pure."""

import json
from typing import Any

from nat.gateway.dialects import Body, DialectMemory, parse_arguments
from nat.gateway.dialects.answer_parts import AnswerParts, Began, Ended, Grew, Part, Step, named_event, read_whole
from nat.gateway.dialects.responses.tools import Tool, store, tools_of

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED: Body = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": None,
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
_ENCRYPTED = "reasoning.encrypted_content"
_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}


class _Response:
    """The response to a request, with the part of the answer received so far."""

    def __init__(self, request: Body, memory: DialectMemory, answer: AnswerParts) -> None:
        self._request = request
        self._memory = memory
        self.answer = answer
        self.items = _ItemWriter(request, answer, tools_of(request, memory))

    def as_object(self, status: str, output: list[Body], **others: Any) -> Body:
        """The object, which repeats fields of the request as OpenAI does."""
        given = {key: self._request[key] for key in _ECHOED if self._request.get(key) is not None}
        head = {"id": f"resp_{self.answer.id}", "object": "response", "created_at": self.answer.created}
        nothing = {"error": None, "incomplete_details": None, "usage": None}
        return {
            **head,
            "status": status,
            "model": self._request.get("model"),
            "output": output,
            **_ECHOED,
            **given,
            **nothing,
            **others,
        }

    def finished(self) -> Body:
        """The whole response; it is stored for calls that continue it."""
        reason = self._reason()
        status, details = ("incomplete", {"reason": reason}) if reason else ("completed", None)
        output = [self.item(part) for part in self.answer.parts]
        response = self.as_object(status, output, incomplete_details=details, usage=self._usage())
        for part in self.answer.calls:
            if self.items.is_custom(part):
                self._memory.keep_arguments(part.call_id, part.text)
        store(self._memory, response, self._request, self.answer.message())
        return response

    def item(self, part: Part) -> Body:
        """The item of a complete part; the last one of a truncated answer is incomplete."""
        cut = self._reason() is not None and part is self.answer.parts[-1]
        return self.items.whole(part, "incomplete" if cut else "completed")

    def _reason(self) -> str | None:
        return _INCOMPLETE.get(self.answer.finish_reason or "")

    def _usage(self) -> Body | None:
        usage = self.answer.usage
        if not usage:
            return None
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        thinking = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        prompt, sampled = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": thinking},
            "total_tokens": usage.get("total_tokens", prompt + sampled),
        }


def from_chat(completion: Body, request: Body, memory: DialectMemory) -> Body:
    """The whole answer as a response."""
    return _Response(request, memory, read_whole(completion, memory)).finished()


class ResponseStream:
    """response.created, the events of each item from `added` to `done`, then the event of the response's end."""

    def __init__(self, request: Body, memory: DialectMemory) -> None:
        self._response = _Response(request, memory, AnswerParts(memory))
        self._number = 0

    def push(self, chunk: Body) -> bytes:
        steps = self._response.answer.push(chunk)
        return self._opening() + b"".join(map(self._step, steps))

    def finish(self) -> bytes:
        ends = b"".join(map(self._step, self._response.answer.finish()))
        response = self._response.finished()
        return self._opening() + ends + self._event(f"response.{response['status']}", {"response": response})

    def fail(self, message: str) -> bytes:
        failed = self._response.as_object("failed", [], error={"code": "server_error", "message": message})
        return self._opening() + self._event("response.failed", {"response": failed})

    def _opening(self) -> bytes:
        if self._number:
            return b""
        begun = {"response": self._response.as_object("in_progress", [])}
        return self._event("response.created", begun) + self._event("response.in_progress", begun)

    def _event(self, name: str, data: Body) -> bytes:
        self._number += 1
        return named_event(name, {"sequence_number": self._number - 1, **data})

    def _step(self, step: Step) -> bytes:
        match step:
            case Began(part):
                return self._began(part)
            case Grew(part, piece):
                return self._grew(part, piece)
            case Ended(part):
                return self._ended(part)

    def _began(self, part: Part) -> bytes:
        item = self._response.items.begun(part)
        added = self._event("response.output_item.added", {"output_index": part.number, "item": item})
        if part.kind == "call":
            return added
        return added + self._part_event(part, "response.content_part.added", {"part": _content_part(part, "")})

    def _grew(self, part: Part, piece: str) -> bytes:
        match part.kind:
            case "text":
                return self._part_event(part, "response.output_text.delta", {"delta": piece, "logprobs": []})
            case "reasoning":
                return self._part_event(part, "response.reasoning_text.delta", {"delta": piece})
            case "call" if self._response.items.is_custom(part):
                return b""  # its text is inside of JSON, which is complete only at the end
            case "call":
                return self._item_event(part, "response.function_call_arguments.delta", {"delta": piece})

    def _ended(self, part: Part) -> bytes:
        item, text = self._response.item(part), part.text
        match part.kind:
            case "call" if self._response.items.is_custom(part):
                text = _custom_input(text)
                done = self._item_event(part, "response.custom_tool_call_input.delta", {"delta": text})
                done += self._item_event(part, "response.custom_tool_call_input.done", {"input": text})
            case "call":
                said = {"arguments": text, "name": item["name"]}
                done = self._item_event(part, "response.function_call_arguments.done", said)
            case "reasoning":
                done = self._part_event(part, "response.reasoning_text.done", {"text": text})
            case "text":
                done = self._part_event(part, "response.output_text.done", {"text": text, "logprobs": []})
        if part.kind != "call":
            done += self._part_event(part, "response.content_part.done", {"part": _content_part(part, text)})
        return done + self._event("response.output_item.done", {"output_index": part.number, "item": item})

    def _part_event(self, part: Part, name: str, data: Body) -> bytes:
        return self._item_event(part, name, {"content_index": 0, **data})

    def _item_event(self, part: Part, name: str, data: Body) -> bytes:
        place = {"output_index": part.number, "item_id": self._response.items.id(part)}
        return self._event(name, {**place, **data})


class _ItemWriter:
    """Writes the items of one answer: without text when they begin, and whole."""

    def __init__(self, request: Body, answer: AnswerParts, tools: dict[str, Tool]) -> None:
        self._answer = answer
        self._tools = tools
        self._seals = _ENCRYPTED in (request.get("include") or ())

    def is_custom(self, part: Part) -> bool:
        """True if the called tool is a custom tool, whose argument is one text."""
        tool = self._tools.get(part.name)
        return tool is not None and tool.custom

    def id(self, part: Part) -> str:
        """Agents recognise an item's type by the prefix of its id."""
        kind = "ctc" if self.is_custom(part) else _PREFIXES[part.kind]
        return f"{kind}_{self._answer.id}_{part.number}"

    def begun(self, part: Part) -> Body:
        """The item before its first text."""
        item = self._item(part, "", "in_progress")
        return item | ({"content": []} if part.kind != "call" else {})

    def whole(self, part: Part, status: str) -> Body:
        """The item with all its text."""
        return self._item(part, part.text, status)

    def _item(self, part: Part, text: str, status: str) -> Body:
        head = {"id": self.id(part), "status": status}
        match part.kind:
            case "text":
                return {"type": "message", **head, "role": "assistant", "content": [_content_part(part, text)]}
            case "reasoning":
                seal = {"encrypted_content": json.dumps({part.origin: text}, ensure_ascii=False)} if self._seals else {}
                return {"type": "reasoning", **head, "summary": [], "content": [_content_part(part, text)], **seal}
            case "call":
                return head | self._call(part, text)

    def _call(self, part: Part, arguments: str) -> Body:
        tool = self._tools.get(part.name)
        called: Body = {"call_id": part.call_id, "name": part.name if tool is None else tool.name}
        if tool is not None and tool.namespace:
            called["namespace"] = tool.namespace
        if tool is not None and tool.custom:
            return {"type": "custom_tool_call", "input": _custom_input(arguments), **called}
        return {"type": "function_call", "arguments": arguments, **called}


def _content_part(part: Part, text: str) -> Body:
    """The content part of an item of text or thinking."""
    if part.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _custom_input(arguments: str) -> str:
    """The text for a custom tool; the arguments as written if they do not have the form."""
    text = parse_arguments(arguments).get("input")
    return text if isinstance(text, str) else arguments

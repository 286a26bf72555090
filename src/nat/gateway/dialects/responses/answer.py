"""A chat's answer as a response, whole and in events. Pure."""

from typing import Any

from nat.gateway.dialects import Body, Memory
from nat.gateway.dialects.answer_parts import AnswerParts, Began, Ended, Grew, Part, Step, read_whole
from nat.gateway.dialects.chat import error
from nat.gateway.dialects.named_events import named_event
from nat.gateway.dialects.responses.items import ItemWriter, content_part, custom_input
from nat.gateway.dialects.responses.stored import store
from nat.gateway.dialects.responses.tools import tools_of
from nat.gateway.dialects.sampled import remember_arguments

__all__ = ["ResponseStream", "error", "from_chat"]

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


class _Response:
    """The response to a request, as far as its answer has come."""

    def __init__(self, asked: Body, memory: Memory, answer: AnswerParts) -> None:
        self._asked = asked
        self._memory = memory
        self.answer = answer
        self.items = ItemWriter(asked, answer, tools_of(asked, memory))

    def said(self, status: str, output: list[Body], **others: Any) -> Body:
        """The object with what was asked for in it, as OpenAI gives it back."""
        echo = {key: default if (asked := self._asked.get(key)) is None else asked for key, default in _ECHOED.items()}
        head = {"id": f"resp_{self.answer.id}", "object": "response", "created_at": self.answer.created}
        nothing = {"error": None, "incomplete_details": None, "usage": None}
        return {
            **head,
            "status": status,
            "model": self._asked.get("model"),
            "output": output,
            **echo,
            **nothing,
            **others,
        }

    def finished(self) -> Body:
        """The whole response, remembered for the calls that go on from it."""
        reason = self._reason()
        status, details = ("incomplete", {"reason": reason}) if reason else ("completed", None)
        output = [self.item(part) for part in self.answer.parts]
        response = self.said(status, output, incomplete_details=details, usage=self._usage())
        for part in self.answer.calls:
            if self.items.is_custom(part):
                remember_arguments(self._memory, part.call_id, part.text)
        store(self._memory, response, self._asked, self.answer.message())
        return response

    def item(self, part: Part) -> Body:
        """The item of a part that has ended; the one in which an answer was cut is incomplete."""
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


def from_chat(completion: Body, asked: Body, memory: Memory) -> Body:
    """The whole answer as a response."""
    return _Response(asked, memory, read_whole(completion, memory)).finished()


class ResponseStream:
    """response.created, the events of each item from its adding to its being done, then how the response ended."""

    def __init__(self, asked: Body, memory: Memory) -> None:
        self._response = _Response(asked, memory, AnswerParts(memory))
        self._number = 0

    def push(self, chunk: Body) -> bytes:
        steps = self._response.answer.push(chunk)
        return self._opening() + b"".join(map(self._step, steps))

    def finish(self) -> bytes:
        ends = b"".join(map(self._step, self._response.answer.finish()))
        response = self._response.finished()
        return self._opening() + ends + self._event(f"response.{response['status']}", {"response": response})

    def fail(self, message: str) -> bytes:
        failed = self._response.said("failed", [], error={"code": "server_error", "message": message})
        return self._opening() + self._event("response.failed", {"response": failed})

    def _opening(self) -> bytes:
        if self._number:
            return b""
        begun = {"response": self._response.said("in_progress", [])}
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
        return added + self._part_event(part, "response.content_part.added", {"part": content_part(part, "")})

    def _grew(self, part: Part, piece: str) -> bytes:
        match part.kind:
            case "text":
                return self._part_event(part, "response.output_text.delta", {"delta": piece, "logprobs": []})
            case "reasoning":
                return self._part_event(part, "response.reasoning_text.delta", {"delta": piece})
            case "call" if self._response.items.is_custom(part):
                return b""  # its text stands inside of JSON, which is whole only at the end
            case "call":
                return self._item_event(part, "response.function_call_arguments.delta", {"delta": piece})

    def _ended(self, part: Part) -> bytes:
        item = self._response.item(part)
        text = self._call_done(part, item) if part.kind == "call" else self._text_done(part)
        return text + self._event("response.output_item.done", {"output_index": part.number, "item": item})

    def _text_done(self, part: Part) -> bytes:
        if part.kind == "reasoning":
            text = self._part_event(part, "response.reasoning_text.done", {"text": part.text})
        else:
            text = self._part_event(part, "response.output_text.done", {"text": part.text, "logprobs": []})
        return text + self._part_event(part, "response.content_part.done", {"part": content_part(part, part.text)})

    def _call_done(self, part: Part, item: Body) -> bytes:
        if not self._response.items.is_custom(part):
            said = {"arguments": part.text, "name": item["name"]}
            return self._item_event(part, "response.function_call_arguments.done", said)
        text = custom_input(part.text)
        delta = self._item_event(part, "response.custom_tool_call_input.delta", {"delta": text})
        return delta + self._item_event(part, "response.custom_tool_call_input.done", {"input": text})

    def _part_event(self, part: Part, name: str, data: Body) -> bytes:
        return self._item_event(part, name, {"content_index": 0, **data})

    def _item_event(self, part: Part, name: str, data: Body) -> bytes:
        place = {"output_index": part.number, "item_id": self._response.items.id(part)}
        return self._event(name, {**place, **data})

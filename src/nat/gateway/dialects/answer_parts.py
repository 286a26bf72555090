"""A chat completion as a sequence of parts: thinking, text and tool calls. Pure.

Two dialects have such answers; they write their events and their whole answers from these parts. A whole answer is
read as one chunk, so that it cannot differ from the stream.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from nat.gateway.dialects import Body, BrokenOrder, DialectMemory
from nat.http.sse import event

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields in which servers put thinking that they separate from the text; the first is the older name."""

Kind = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class Part:
    """One part of an answer, with the text received so far."""

    kind: Kind
    number: int
    """Its index, from 0."""
    origin: str
    """The field of the chat message that it came from."""
    call_id: str = ""
    name: str = ""
    """Name of the called function."""
    text: str = ""
    """The text, or the call's arguments as the model wrote them."""


@dataclass(frozen=True, slots=True)
class Began:
    """A part has begun; it has no text yet."""

    part: Part


@dataclass(frozen=True, slots=True)
class Grew:
    """`piece` was added to the part's text."""

    part: Part
    piece: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The part is complete."""

    part: Part


Step = Began | Grew | Ended


@dataclass(slots=True)
class AnswerParts:
    """The parts of an answer received so far; of its first choice only, since these dialects have one."""

    memory: DialectMemory
    """The rollout's memory."""
    id: str = ""
    created: int = 0
    parts: list[Part] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: Any = None
    """The stop text that ended the answer, from servers that report it."""
    usage: Body = field(default_factory=dict)
    _calls: dict[int, Part] = field(default_factory=dict)
    _open: Part | None = None

    def push(self, chunk: Body) -> list[Step]:
        """The steps that a chunk adds."""
        self.id = self.id or self.memory.unique_id(chunk.get("id") or "answer")
        self.created = self.created or chunk.get("created") or 0
        self.usage = chunk.get("usage") or self.usage
        steps: list[Step] = []
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._add(choice.get("delta") or {}, steps)
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
                self.stop_reason = choice.get("stop_reason") or self.stop_reason
        return steps

    def finish(self) -> list[Step]:
        """The steps at the end of the answer."""
        steps: list[Step] = []
        self._close(steps)
        return steps

    @property
    def calls(self) -> list[Part]:
        return [part for part in self.parts if part.kind == "call"]

    def message(self) -> Body:
        """The assistant's message of a chat, with which the next request repeats exactly the sampled text."""
        message: Body = {"role": "assistant", "content": "".join(p.text for p in self.parts if p.kind == "text")}
        for part in self.parts:
            if part.kind == "reasoning":
                message[part.origin] = message.get(part.origin, "") + part.text
        if self.calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [chat_call(part.call_id, part.name, part.text) for part in self.calls]
        return message

    def _add(self, delta: Body, steps: list[Step]) -> None:
        origin = next((name for name in REASONING_FIELDS if delta.get(name)), None)
        if origin is not None:
            self._add_text("reasoning", origin, delta[origin], steps)
        for name in ("content", "refusal"):
            if delta.get(name):
                self._add_text("text", name, delta[name], steps)
        for call in delta.get("tool_calls") or ():
            self._add_call(call, steps)

    def _add_text(self, kind: Kind, origin: str, piece: str, steps: list[Step]) -> None:
        part = self._open
        if part is None or part.kind != kind:
            part = self._begin(Part(kind, len(self.parts), origin), steps)
        part.text += piece
        steps.append(Grew(part, piece))

    def _add_call(self, call: Body, steps: list[Step]) -> None:
        index, function = call.get("index", len(self._calls)), call.get("function") or {}
        part = self._calls.get(index)
        if part is None:
            call_id = call.get("id") or f"call_{self.id}_{index}"
            part = Part("call", len(self.parts), "tool_calls", call_id, function.get("name") or "")
            self._calls[index] = self._begin(part, steps)
        piece = function.get("arguments")
        if not piece:
            return
        if part is not self._open:
            raise BrokenOrder(f"the server added to tool call {part.name!r} after it had gone on to the next part")
        part.text += piece
        steps.append(Grew(part, piece))

    def _begin(self, part: Part, steps: list[Step]) -> Part:
        self._close(steps)
        self._open = part
        self.parts.append(part)
        steps.append(Began(part))
        return part

    def _close(self, steps: list[Step]) -> None:
        if self._open is not None:
            steps.append(Ended(self._open))
            self._open = None


def read_whole(completion: Body, memory: DialectMemory) -> AnswerParts:
    """The parts of an unstreamed answer."""
    answer = AnswerParts(memory)
    choices = [{**choice, "delta": choice.get("message")} for choice in completion.get("choices") or ()]
    answer.push({**completion, "choices": choices})
    answer.finish()
    return answer


def chat_call(call_id: str, name: str, arguments: str) -> Body:
    """A tool call as a chat's message holds it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def named_event(name: str, data: Body) -> bytes:
    """An event of a dialect that repeats the event's name in its data."""
    return event(to_json({"type": name, **data}), name)

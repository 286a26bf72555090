"""OpenAI's Responses request as a chat's. Pure."""

from typing import Any

from nat.gateway.dialects import Body, DialectMemory, Untranslatable
from nat.gateway.dialects.answer_parts import REASONING_FIELDS, chat_call
from nat.gateway.dialects.content import (
    count_at,
    image_part,
    joined,
    listed,
    object_at,
    schema_format,
    text_at,
    text_part,
    texts_at,
    unknown_type,
)
from nat.gateway.dialects.responses.tools import (
    chat_name,
    earlier_turns,
    input_items,
    referred_item,
    tool_fields,
    tools_of,
)
from nat.secrets import excerpt
from nat.wire.json import parse_json

_SAME = ("temperature", "top_p", "stream", "seed", "top_k", "min_p", "stop", "chat_template_kwargs")
"""The last five are not fields of this API, but some servers take them for sampling."""
_NOT_HERE = {
    "background": "wait for the answer instead",
    "conversation": "send the input or previous_response_id",
    "prompt": "send its text as instructions",
    "top_logprobs": "request them with chat completions",
}
_LOGPROBS = "message.output_text.logprobs"
_KNOWN = (
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
)
_NO_MESSAGE = ("additional_tools", "configuration_update")


def to_chat(body: Body, memory: DialectMemory) -> Body:
    """The request as a chat-completions request."""
    for field, remedy in _NOT_HERE.items():
        if body.get(field):
            raise Untranslatable(f"{field}: not available in a chat, got {excerpt(repr(body[field]), 80)}; {remedy}")
    if _LOGPROBS in texts_at(body.get("include"), "include"):
        raise Untranslatable(f"include: {_LOGPROBS!r} is not available here; {_NOT_HERE['top_logprobs']}")
    transcript = _Transcript(memory)
    if body.get("instructions"):
        transcript.system(text_at(body["instructions"], "instructions"))
    for turn in earlier_turns(memory, body):
        for item in turn.items:
            transcript.add(item, "previous_response_id")
        transcript.answer(turn.message)
    for number, item in enumerate(input_items(body)):
        transcript.add(item, f"input.{number}")
    transcript.finish_results()
    if not transcript.messages:
        raise Untranslatable("input: wanted at least one message, got none")
    chat: Body = {"model": body.get("model"), "messages": transcript.messages}
    chat |= {key: body[key] for key in _SAME if body.get(key) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = count_at(body["max_output_tokens"], "max_output_tokens")
    if body.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat | tool_fields(body, tools_of(body, memory)) | _format(body.get("text") or {})


def _format(text: Any) -> Body:
    """The response format, if the request has one."""
    wanted = object_at(object_at(text, "text").get("format") or {"type": "text"}, "text.format")
    match wanted.get("type"):
        case "text":
            return {}
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            others = {key: wanted[key] for key in ("strict", "description") if wanted.get(key) is not None}
            return {"response_format": schema_format(wanted.get("name", "answer"), wanted.get("schema"), **others)}
        case other:
            raise unknown_type(other, ("text", "json_object", "json_schema"), "text.format.type", "use one of these")


class _Transcript:
    """The messages so far; the items of one answer are joined to one message."""

    def __init__(self, memory: DialectMemory) -> None:
        self.messages: list[Body] = []
        self._memory = memory
        self._images: list[Body] = []

    def add(self, item: Body, place: str) -> None:
        """Add the message of an item, or add the item to its message."""
        kind = item.get("type") or "message"
        if kind in ("function_call_output", "custom_tool_call_output"):
            self._result(item, place)
            return
        self.finish_results()
        match kind:
            case "message":
                self._message(item, place)
            case "function_call" | "custom_tool_call":
                self._call(item, place, custom=kind == "custom_tool_call")
            case "reasoning":
                self._reasoning(item, place)
            case "item_reference":
                self.add(referred_item(self._memory, item.get("id"), place), place)
            case other if other not in _NO_MESSAGE:
                raise unknown_type(other, _KNOWN, place, "leave the item out")

    def answer(self, message: Body) -> None:
        """Add an answer of the model."""
        self.finish_results()
        self.messages.append(dict(message))

    def system(self, text: str) -> None:
        """Add to the system message if it is the last one, else as a new one."""
        if (last := self._last("system")) is not None:
            last["content"] = f"{last['content']}\n\n{text}"
        else:
            self.messages.append({"role": "system", "content": text})

    def finish_results(self) -> None:
        """Add the images of the tool results, which tool messages cannot hold."""
        if self._images:
            self.messages.append({"role": "user", "content": self._images})
            self._images = []

    def _message(self, item: Body, place: str) -> None:
        role = item.get("role")
        parts = _parts(item.get("content"), f"{place}.content")
        if role == "assistant":
            self._text("".join(part["text"] for part in parts if part["type"] == "text"))
        elif role == "user":
            self.messages.append({"role": "user", "content": joined(parts)})
        elif role in ("system", "developer"):
            self.system("\n\n".join(part["text"] for part in parts if part["type"] == "text"))
        else:
            raise unknown_type(role, ("user", "assistant", "system", "developer"), f"{place}.role", "use one of these")

    def _text(self, text: str) -> None:
        """Add a text; a second one begins another message, unless calls are in between: their results come next."""
        last = self._last("assistant")
        if last is None or (last["content"] and "tool_calls" not in last):
            self.messages.append({"role": "assistant", "content": text})
        else:
            last["content"] = (last["content"] or "") + text

    def _call(self, item: Body, place: str, *, custom: bool) -> None:
        call_id, name = text_at(item.get("call_id"), f"{place}.call_id"), text_at(item.get("name"), f"{place}.name")
        if custom:
            text = text_at(item.get("input"), f"{place}.input")
            arguments = self._memory.arguments_text(call_id, {"input": text})
        else:
            arguments = text_at(item.get("arguments"), f"{place}.arguments")
        last = self._last("assistant")
        if last is None:
            last = {"role": "assistant", "content": None}
            self.messages.append(last)
        call = chat_call(call_id, chat_name(name, item.get("namespace")), arguments)
        last |= {"content": last["content"] or None, "tool_calls": [*last.get("tool_calls", ()), call]}

    def _reasoning(self, item: Body, place: str) -> None:
        """Thinking precedes the rest of its message; thinking that was encrypted elsewhere is another model's."""
        field, text = _thinking(item, place)
        if not text:
            return
        last = self._last("assistant")
        if last is None or last["content"] or "tool_calls" in last:
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        last[field] = last.get(field, "") + text

    def _result(self, item: Body, place: str) -> None:
        parts = _parts(item.get("output"), f"{place}.output")
        texts = [part for part in parts if part["type"] == "text"]
        self._images += [part for part in parts if part["type"] != "text"]
        call_id = text_at(item.get("call_id"), f"{place}.call_id")
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": joined(texts)})

    def _last(self, role: str) -> Body | None:
        """The last message, if it has this role."""
        return self.messages[-1] if self.messages and self.messages[-1]["role"] == role else None


def _thinking(item: Body, place: str) -> tuple[str, str]:
    """The chat's field and the text; the older field if only the text is known."""
    kept = text_at(item.get("encrypted_content") or "{}", f"{place}.encrypted_content")
    try:
        said = parse_json(kept)
    except ValueError:
        said = {}
    for field in REASONING_FIELDS:
        if isinstance(said, dict) and isinstance(said.get(field), str):
            return field, said[field]
    parts = listed(item.get("content") or [], f"{place}.content")
    return REASONING_FIELDS[0], "".join(str(part.get("text", "")) for part in parts)


def _parts(content: Any, place: str) -> list[Body]:
    if isinstance(content, str):
        return [text_part(content)]
    return [_part(part, f"{place}.{number}") for number, part in enumerate(listed(content, place))]


def _part(part: Body, place: str) -> Body:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return text_part(text_at(part.get("text"), f"{place}.text"))
        case "refusal":
            return text_part(text_at(part.get("refusal"), f"{place}.refusal"))
        case "input_image" if part.get("image_url"):
            return image_part(text_at(part["image_url"], f"{place}.image_url"), part.get("detail"))
        case "input_image":
            raise unknown_type("file_id", ("image_url",), place, "send the image's data or its URL")
        case other:
            raise unknown_type(other, ("input_text", "output_text", "input_image"), place, "send what it holds as text")

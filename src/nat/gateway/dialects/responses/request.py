"""OpenAI's Responses request as a chat's. Pure."""

from typing import Any

from nat.gateway.dialects import Body, Memory, Untranslatable
from nat.gateway.dialects.content import chosen, count_at, object_at, schema_format, text_at, texts_at
from nat.gateway.dialects.responses.stored import earlier_turns, input_items
from nat.gateway.dialects.responses.tools import tool_fields, tools_of
from nat.gateway.dialects.responses.transcript import Transcript
from nat.secrets import excerpt

_SAME = ("temperature", "top_p", "stream", "seed", "top_k", "min_p", "stop", "chat_template_kwargs")
"""The last five are no fields of this API: they are for servers that know more of sampling."""
_NOT_HERE = {
    "background": "wait for the answer instead",
    "conversation": "send the input or previous_response_id",
    "prompt": "send its text as instructions",
    "top_logprobs": "ask for them with chat completions",
}
_LOGPROBS = "message.output_text.logprobs"


def to_chat(body: Body, memory: Memory) -> Body:
    """The request as a chat-completions request."""
    _refuse(body)
    messages = _messages(body, memory)
    if not messages:
        raise Untranslatable("input: wanted at least one message, got none")
    chat: Body = {"model": body.get("model"), "messages": messages}
    chat |= {key: body[key] for key in _SAME if body.get(key) is not None}
    if body.get("max_output_tokens") is not None:
        chat["max_tokens"] = count_at(body["max_output_tokens"], "max_output_tokens")
    if body.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat | tool_fields(body, tools_of(body, memory)) | _format(body.get("text") or {})


def _refuse(body: Body) -> None:
    for field, remedy in _NOT_HERE.items():
        if body.get(field):
            raise Untranslatable(f"{field}: a chat has no such thing, got {excerpt(repr(body[field]), 80)}; {remedy}")
    if _LOGPROBS in texts_at(body.get("include"), "include"):
        raise Untranslatable(f"include: {_LOGPROBS!r} is not given here; {_NOT_HERE['top_logprobs']}")


def _messages(body: Body, memory: Memory) -> list[Body]:
    transcript = Transcript(memory)
    if body.get("instructions"):
        transcript.system(text_at(body["instructions"], "instructions"))
    for turn in earlier_turns(memory, body):
        for item in turn.items:
            transcript.add(item, "previous_response_id")
        transcript.answer(turn.message)
    for number, item in enumerate(input_items(body)):
        transcript.add(item, f"input.{number}")
    transcript.finish_results()
    return transcript.messages


def _format(text: Any) -> Body:
    """The form of the answer's text, if it is to have one."""
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
            raise chosen(other, ("text", "json_object", "json_schema"), "text.format.type", "use one of these")

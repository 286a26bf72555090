"""Anthropic's Messages API as a chat.

Several text blocks of a message become one text, joined by an empty line; those of the assistant are joined without
one, since they are pieces of one sampled text. A tool's result becomes a separate message before the rest of the
user's, with its images after it, because a chat's tool message holds text. An answer has a thinking block if the server
separates the thinking from the text; the block's signature names the chat's field, so that it returns in the same
field. Thinking with another signature is another model's and is left out.

Features of the vendor's own service are left out: caching, effort and thinking budgets, tools that it runs itself.
Features that an agent would miss silently are refused: prefilled answers, files, tools whose schema only the vendor's
models know.
"""

from typing import Any

from nat.gateway.dialects import Body, DialectMemory, Untranslatable, parse_arguments
from nat.gateway.dialects.answer_parts import (
    REASONING_FIELDS,
    AnswerParts,
    Began,
    Ended,
    Grew,
    Part,
    Step,
    chat_call,
    named_event,
    read_whole,
)
from nat.gateway.dialects.content import (
    function_tool,
    image_part,
    joined,
    listed,
    named_choice,
    object_at,
    schema_format,
    text_at,
    text_part,
    texts_at,
    unknown_type,
)
from nat.http.errors import ApiError

_SAME = ("temperature", "top_p", "top_k", "max_tokens", "stream")
_RUN_BY_THE_VENDOR = ("web_search", "web_fetch", "code_execution", "tool_search")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_UNAVAILABLE, _OVERLOADED, _SERVERS_FAULT = 503, 529, 500
_ENDS = {"length": "max_tokens", "content_filter": "refusal"}


def to_chat(body: Body, memory: DialectMemory) -> Body:
    """The request as a chat-completions request."""
    system = body.get("system")
    messages: list[Body] = [{"role": "system", "content": joined(_parts(system, "system"))}] if system else []
    for number, message in enumerate(listed(body.get("messages"), "messages")):
        messages += _message(message, f"messages.{number}", memory)
    if not messages or messages[-1]["role"] == "assistant":
        raise Untranslatable(
            "messages: the last one must not be the assistant's; a model behind this gateway cannot continue a"
            " prefilled answer"
        )
    chat: Body = {"model": body.get("model"), "messages": messages}
    chat |= {key: body[key] for key in _SAME if body.get(key) is not None}
    if stops := texts_at(body.get("stop_sequences"), "stop_sequences"):
        chat["stop"] = stops
    if body.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    if wanted := object_at(body.get("output_config") or {}, "output_config").get("format"):  # the effort is ignored
        schema = object_at(wanted, "output_config.format").get("schema")
        chat["response_format"] = schema_format("answer", schema)
    return chat | _tools(body)


def _message(message: Body, place: str, memory: DialectMemory) -> list[Body]:
    role, content = message.get("role"), message.get("content")
    if role == "assistant":
        return [_assistant(content, f"{place}.content", memory)]
    if role == "user":
        return _user(content, f"{place}.content")
    if role == "system":
        return [{"role": "system", "content": joined(_parts(content, f"{place}.content"))}]
    raise unknown_type(role, ("user", "assistant", "system"), f"{place}.role", "use one of these")


def _user(content: Any, place: str) -> list[Body]:
    """The results of tools as messages, then the rest."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    results: list[Body] = []
    rest: list[Body] = []
    for number, block in enumerate(listed(content, place)):
        where = f"{place}.{number}"
        if block.get("type") != "tool_result":
            rest += _part(block, where)
            continue
        parts = _parts(block.get("content") or [], f"{where}.content")
        texts = [part for part in parts if part["type"] == "text"]
        rest += [part for part in parts if part["type"] != "text"]
        results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": joined(texts)})
    return [*results, {"role": "user", "content": joined(rest)}] if rest or not results else results


def _assistant(content: Any, place: str, memory: DialectMemory) -> Body:
    message: Body = {"role": "assistant", "content": ""}
    if isinstance(content, str):
        return message | {"content": content}
    calls: list[Body] = []
    for number, block in enumerate(listed(content, place)):
        match block.get("type"):
            case "text":
                message["content"] += text_at(block.get("text"), f"{place}.{number}.text")
            case "tool_use":
                calls.append(_call(block, f"{place}.{number}", memory))
            case "thinking":
                if (field := block.get("signature")) in REASONING_FIELDS:
                    thought = text_at(block.get("thinking"), f"{place}.{number}.thinking")
                    message[field] = message.get(field, "") + thought
            case "redacted_thinking":
                pass
            case other:
                raise unknown_type(other, ("text", "tool_use", "thinking"), f"{place}.{number}", "leave the block out")
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    return message


def _call(block: Body, place: str, memory: DialectMemory) -> Body:
    call_id, name = text_at(block.get("id"), f"{place}.id"), text_at(block.get("name"), f"{place}.name")
    given = object_at(block.get("input"), f"{place}.input")
    return chat_call(call_id, name, memory.arguments_text(call_id, given))


def _parts(content: Any, place: str) -> list[Body]:
    """A text or a list of blocks as the parts of a chat's content."""
    if isinstance(content, str):
        return [text_part(content)]
    return [part for number, block in enumerate(listed(content, place)) for part in _part(block, f"{place}.{number}")]


def _part(block: Body, place: str) -> list[Body]:
    match block.get("type"):
        case "text":
            return [text_part(text_at(block.get("text"), f"{place}.text"))]
        case "image":
            return [image_part(_image_url(object_at(block.get("source"), f"{place}.source"), f"{place}.source"))]
        case "document":
            return _document(block, place)
        case "tool_reference":
            return [text_part(str(block.get("tool_name", "")))]
        case other:
            known = ("text", "image", "document", "tool_result")
            raise unknown_type(other, known, place, "send what it holds as text")


def _image_url(source: Body, place: str) -> str:
    match source.get("type"):
        case "base64":
            return f"data:{source.get('media_type')};base64,{source.get('data')}"
        case "url":
            return text_at(source.get("url"), f"{place}.url")
        case other:
            raise unknown_type(other, ("base64", "url"), place, "send the image's data or its URL")


def _document(block: Body, place: str) -> list[Body]:
    """The texts and images of a document, after its title."""
    source = object_at(block.get("source"), f"{place}.source")
    title = [text_part(text_at(block["title"], f"{place}.title"))] if block.get("title") else []
    match source.get("type"):
        case "text":
            return [*title, text_part(text_at(source.get("data"), f"{place}.source.data"))]
        case "content":
            return [*title, *_parts(source.get("content"), f"{place}.source.content")]
        case other:
            raise unknown_type(other, ("text", "content"), f"{place}.source", "send the document's text")


def _tools(body: Body) -> Body:
    """Tools and the tool choice; empty without a tool, since servers refuse a choice without tools."""
    read = (_tool(tool, f"tools.{n}") for n, tool in enumerate(listed(body.get("tools") or [], "tools")))
    tools = [tool for tool in read if tool is not None]
    choice = object_at(body.get("tool_choice") or {"type": "auto"}, "tool_choice")
    if choice.get("type") == "tool" and not any(tool["function"]["name"] == choice.get("name") for tool in tools):
        raise Untranslatable(f"tool_choice.name: {choice.get('name')!r} is none of the request's tools")
    if not tools:
        return {}
    chat: Body = {"tools": tools}
    if choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False
    kind = text_at(choice.get("type"), "tool_choice.type")
    if kind not in (*_CHOICES, "tool"):
        raise unknown_type(kind, (*_CHOICES, "tool"), "tool_choice.type", "use one of these")
    if body.get("tool_choice"):
        chat["tool_choice"] = named_choice(choice["name"]) if kind == "tool" else _CHOICES[kind]
    return chat


def _tool(tool: Body, place: str) -> Body | None:
    """None for a tool that the vendor's service runs: here the model cannot call it."""
    kind = tool.get("type") or "custom"
    if kind == "custom":
        name, schema = text_at(tool.get("name"), f"{place}.name"), tool.get("input_schema")
        return function_tool(name, tool.get("description"), schema, strict=tool.get("strict"))
    if str(kind).startswith(_RUN_BY_THE_VENDOR):
        return None
    raise unknown_type(kind, ("custom",), f"{place}.type", "describe the tool with a name and an input_schema")


def from_chat(completion: Body, request: Body, memory: DialectMemory) -> Body:
    """The whole answer as a message."""
    answer = read_whole(completion, memory)
    _remember(answer, memory)
    content = [_block(part, part.text) for part in answer.parts]
    return _head(answer, request) | {"content": content} | _ending(answer, request) | {"usage": _usage(answer)}


def error(failure: ApiError) -> tuple[int, Body]:
    """An error in Anthropic's shape; its clients know a server that is too busy by a status of its own."""
    status = _OVERLOADED if failure.status == _UNAVAILABLE else failure.status
    kind = _ERRORS.get(status, "api_error" if status >= _SERVERS_FAULT else "invalid_request_error")
    return status, {"type": "error", "error": {"type": kind, "message": failure.message}}


class MessageStream:
    """message_start, each block from its start to its stop, message_delta, message_stop."""

    def __init__(self, request: Body, memory: DialectMemory) -> None:
        self._request = request
        self._memory = memory
        self._answer = AnswerParts(memory)
        self._started = False

    def push(self, chunk: Body) -> bytes:
        steps = self._answer.push(chunk)
        return self._opening() + b"".join(map(_event, steps))

    def finish(self) -> bytes:
        ends = b"".join(map(_event, self._answer.finish()))
        _remember(self._answer, self._memory)
        end = {"delta": _ending(self._answer, self._request), "usage": _usage(self._answer)}
        return self._opening() + ends + named_event("message_delta", end) + named_event("message_stop", {})

    def fail(self, message: str) -> bytes:
        return named_event("error", error(ApiError(message, status=_SERVERS_FAULT))[1])

    def _opening(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        nothing_yet: Body = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(self._answer)}
        return named_event("message_start", {"message": _head(self._answer, self._request) | nothing_yet})


def _event(step: Step) -> bytes:
    number = step.part.number
    match step:
        case Began(part):
            return named_event("content_block_start", {"index": number, "content_block": _block(part, "")})
        case Grew(part, piece):
            return _grown(part, piece)
        case Ended(part):
            signed = b""
            if part.kind == "reasoning":
                signed = _delta(number, {"type": "signature_delta", "signature": part.origin})
            return signed + named_event("content_block_stop", {"index": number})


def _grown(part: Part, piece: str) -> bytes:
    match part.kind:
        case "text":
            return _delta(part.number, {"type": "text_delta", "text": piece})
        case "reasoning":
            return _delta(part.number, {"type": "thinking_delta", "thinking": piece})
        case "call" if (so_far := part.text.lstrip()).startswith("{"):
            return _delta(part.number, {"type": "input_json_delta", "partial_json": piece[-len(so_far) :]})
        case "call":  # clients join the pieces, and fail if they are not an object
            return b""


def _delta(number: int, delta: Body) -> bytes:
    return named_event("content_block_delta", {"index": number, "delta": delta})


def _block(part: Part, text: str) -> Body:
    """A part as a content block that holds `text`."""
    match part.kind:
        case "text":
            return {"type": "text", "text": text, "citations": None}
        case "reasoning":
            return {"type": "thinking", "thinking": text, "signature": part.origin if text else ""}
        case "call":
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": parse_arguments(text)}


def _head(answer: AnswerParts, request: Body) -> Body:
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": request.get("model")}


def _ending(answer: AnswerParts, request: Body) -> Body:
    """Why the answer ended; the stop text is known only if the server reports it."""
    if answer.finish_reason in _ENDS:
        return {"stop_reason": _ENDS[answer.finish_reason], "stop_sequence": None}
    if answer.calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if answer.stop_reason in (request.get("stop_sequences") or ()):
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _usage(answer: AnswerParts) -> Body:
    """Counts of tokens; those of the prompt are split into cached ones and others."""
    cached = (answer.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": answer.usage.get("prompt_tokens", 0) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer.usage.get("completion_tokens", 0),
    }


def _remember(answer: AnswerParts, memory: DialectMemory) -> None:
    for call in answer.calls:
        memory.keep_arguments(call.call_id, call.text)


stream = MessageStream

"""A chat's answer as Anthropic's, whole and in events. Pure."""

from nat.gateway.dialects import Body, Memory
from nat.gateway.dialects.answer_parts import AnswerParts, Began, Ended, Grew, Part, Step, read_whole
from nat.gateway.dialects.named_events import named_event
from nat.gateway.dialects.sampled import as_object, remember_arguments
from nat.http.errors import ApiError

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


def from_chat(completion: Body, asked: Body, memory: Memory) -> Body:
    """The whole answer as a message."""
    answer = read_whole(completion, memory)
    _remember(answer, memory)
    content = [_block(part, part.text) for part in answer.parts]
    return _head(answer, asked) | {"content": content} | _ending(answer, asked) | {"usage": _usage(answer)}


def error(failure: ApiError) -> tuple[int, Body]:
    """An error in Anthropic's shape; its clients know a server that is too busy by a status of its own."""
    status = _OVERLOADED if failure.status == _UNAVAILABLE else failure.status
    kind = _ERRORS.get(status, "api_error" if status >= _SERVERS_FAULT else "invalid_request_error")
    return status, {"type": "error", "error": {"type": kind, "message": failure.message}}


class MessageStream:
    """message_start, each block from its start to its stop, message_delta, message_stop."""

    def __init__(self, asked: Body, memory: Memory) -> None:
        self._asked = asked
        self._memory = memory
        self._answer = AnswerParts(memory)
        self._started = False

    def push(self, chunk: Body) -> bytes:
        steps = self._answer.push(chunk)
        return self._opening() + b"".join(map(_event, steps))

    def finish(self) -> bytes:
        ends = b"".join(map(_event, self._answer.finish()))
        _remember(self._answer, self._memory)
        end = {"delta": _ending(self._answer, self._asked), "usage": _usage(self._answer)}
        return self._opening() + ends + named_event("message_delta", end) + named_event("message_stop", {})

    def fail(self, message: str) -> bytes:
        return named_event("error", error(ApiError(message, status=_SERVERS_FAULT))[1])

    def _opening(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        nothing_yet: Body = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage(self._answer)}
        return named_event("message_start", {"message": _head(self._answer, self._asked) | nothing_yet})


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
        case "call":
            return _arguments(part, piece)


def _arguments(part: Part, piece: str) -> bytes:
    """Only from the opening brace on: clients join the pieces to an object and break on what can be none."""
    so_far = part.text.lstrip()
    if not so_far.startswith("{"):
        return b""
    return _delta(part.number, {"type": "input_json_delta", "partial_json": piece[-len(so_far) :]})


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
            return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": as_object(text)}


def _head(answer: AnswerParts, asked: Body) -> Body:
    return {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": asked.get("model")}


def _ending(answer: AnswerParts, asked: Body) -> Body:
    """Why the answer ended; by which stop text is known only of servers that tell."""
    if answer.finish_reason in _ENDS:
        return {"stop_reason": _ENDS[answer.finish_reason], "stop_sequence": None}
    if answer.calls:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if answer.stop_reason in (asked.get("stop_sequences") or ()):
        return {"stop_reason": "stop_sequence", "stop_sequence": answer.stop_reason}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _usage(answer: AnswerParts) -> Body:
    """Counts of tokens; a prompt's are told apart by whether they were in the server's cache."""
    cached = (answer.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": answer.usage.get("prompt_tokens", 0) - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer.usage.get("completion_tokens", 0),
    }


def _remember(answer: AnswerParts, memory: Memory) -> None:
    for call in answer.calls:
        remember_arguments(memory, call.call_id, call.text)

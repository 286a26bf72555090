"""OpenAI's chat completions: what upstream speaks. The agent sees its own name of the model and what it asked for."""

from nat.gateway.dialects import Body, Memory
from nat.gateway.sse import DONE, event

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_SERVER_ERROR = 500


def to_chat(body: Body, _memory: Memory) -> Body:
    """The request as it is."""
    return dict(body)


def from_chat(completion: Body, asked: Body, _memory: Memory) -> Body:
    """The completion, under the name that was asked for."""
    return {**completion, "model": asked.get("model", completion.get("model"))}


class Stream:
    """Each chunk as it comes, like a small completion."""

    def __init__(self, asked: Body) -> None:
        self._asked = asked

    def push(self, chunk: Body) -> bytes:
        return event(from_chat(chunk, self._asked, {}))

    def finish(self) -> bytes:
        return DONE

    def fail(self, message: str) -> bytes:
        return event(error(502, message)[1]) + DONE


def stream(asked: Body, _memory: Memory) -> Stream:
    """The completion in chunks, likewise."""
    return Stream(asked)


def error(status: int, message: str) -> tuple[int, Body]:
    """An error as OpenAI words it."""
    kind = _TYPES.get(status, "server_error" if status >= _SERVER_ERROR else "invalid_request_error")
    return status, {"error": {"message": message, "type": kind, "param": None, "code": None}}

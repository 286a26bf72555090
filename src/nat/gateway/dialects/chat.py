"""OpenAI's chat completions, passed on unchanged but for the model's name, and its older text completions."""

from pydantic_core import to_json

from nat.gateway.dialects import Body, DialectMemory
from nat.http.errors import ApiError
from nat.http.sse import DONE, event


def to_chat(body: Body, _memory: DialectMemory) -> Body:
    """The request, unchanged."""
    return dict(body)


def from_chat(completion: Body, request: Body, _memory: DialectMemory) -> Body:
    """The completion, with the request's name of the model."""
    return _renamed(completion, request)


def _renamed(completion: Body, request: Body) -> Body:
    return {**completion, "model": request.get("model", completion.get("model"))}


class ChatStream:
    """Passes each chunk on as it comes."""

    def __init__(self, request: Body) -> None:
        self._request = request

    def push(self, chunk: Body) -> bytes:
        return event(to_json(_renamed(chunk, self._request)))

    def finish(self) -> bytes:
        return DONE

    def fail(self, message: str) -> bytes:
        return event(ApiError(message, status=502).json()) + DONE


def stream(request: Body, _memory: DialectMemory) -> ChatStream:
    """The completion in chunks, with the request's name of the model."""
    return ChatStream(request)


def error(failure: ApiError) -> tuple[int, Body]:
    """An error in OpenAI's shape."""
    return failure.status, failure.body()

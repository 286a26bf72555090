"""OpenAI's chat completions: what upstream speaks. The agent sees its own name of the model and what it asked for."""

from pydantic_core import to_json

from nat.gateway.dialects import Body, Memory
from nat.http.errors import ApiError
from nat.http.sse import DONE, event


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
        return event(to_json(from_chat(chunk, self._asked, {})))

    def finish(self) -> bytes:
        return DONE

    def fail(self, message: str) -> bytes:
        return event(ApiError(message, status=502).json()) + DONE


def stream(asked: Body, _memory: Memory) -> Stream:
    """The completion in chunks, likewise."""
    return Stream(asked)


def error(failure: ApiError) -> tuple[int, Body]:
    """An error in OpenAI's shape."""
    return failure.status, failure.body().model_dump()

"""OpenAI's chat completions: what upstream speaks. The agent sees its own name of the model and what it asked for."""

from typing import Any

from nat.gateway.dialects import Body, Memory
from nat.gateway.sse import DONE, event

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_SERVER_ERROR = 500


def to_chat(body: Body, _memory: Memory) -> Body:
    """The request as it is."""
    return dict(body)


def from_chat(completion: Body, asked: Body, _memory: Memory) -> Body:
    """The completion without what only the recording asked for."""
    answer = {**completion, "model": asked.get("model", completion.get("model"))}
    wants_ids, wants_logprobs = bool(asked.get("return_token_ids")), wants(asked.get("logprobs"))
    if not wants_ids:
        for key in ("prompt_token_ids", "broken_prefix"):
            answer.pop(key, None)
    choices = completion.get("choices")
    if isinstance(choices, list) and not (wants_ids and wants_logprobs):
        answer["choices"] = [_shown(choice, ids=wants_ids, logprobs=wants_logprobs) for choice in choices]
    return answer


def wants(logprobs: object) -> bool:
    """A chat asks with true; a completion with a number, and 0 asks for those of the sampled tokens."""
    return logprobs is not None and logprobs is not False


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


def _shown(choice: dict[str, Any], *, ids: bool, logprobs: bool) -> dict[str, Any]:
    shown = dict(choice)
    if not ids:
        for key in ("prompt_token_ids", "token_ids"):
            shown.pop(key, None)
    if not logprobs and "logprobs" in shown:
        shown["logprobs"] = None
    return shown

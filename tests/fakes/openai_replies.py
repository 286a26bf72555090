"""Replies of a scripted OpenAI-compatible server, and their form on the wire.

Its tokens are characters, so that every text has exact ids: the prompt of a later turn begins with the ids of the
earlier prompt and its completion, as with a real chat template.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

END, ROLES = 0, {"system": 1, "user": 2, "assistant": 3, "tool": 4, "developer": 5}
_FIRST_CHARACTER = 10
_PIECE = 4
"""Number of characters in one event of a stream."""


@dataclass(frozen=True)
class Say:
    """An assistant's answer; `others` are the further choices of a request with n > 1."""

    content: str | None = "ok"
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str | None = None
    others: tuple["Say", ...] = ()
    broken_prefix: str | None = None
    """The reported reason of a broken prefix, as our own server sends it beside the prompt's ids."""
    tempered: bool = False
    """Whether the log probabilities are reported as those at the request's temperature, as by our own server."""

    @property
    def reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    @property
    def message(self) -> dict[str, Any]:
        calls = {"tool_calls": list(self.tool_calls)} if self.tool_calls else {}
        return {"role": "assistant", "content": self.content, "refusal": None, **calls}


@dataclass(frozen=True)
class Refuse:
    """An answer with an error status, in OpenAI's shape."""

    status: int = 500
    message: str = "the server is on fire"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HangUp:
    """Closes the connection: at once, or after some events of a streamed `say`."""

    after: int = 0
    say: Say = field(default_factory=Say)


@dataclass(frozen=True)
class Raw:
    """Any bytes in place of an answer, after which the connection ends, or stays open and silent."""

    data: bytes
    hangs: bool = False

    @classmethod
    def body(cls, body: bytes, *, kind: str = "application/json", length: int | None = None) -> "Raw":
        """A status of 200 with this body, or with the beginning of one of so many bytes."""
        size = len(body) if length is None else length
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n"
        return cls(head.encode() + body)


Reply = Say | Refuse | HangUp | Raw


def tool_call(name: str, arguments: dict[str, Any], call_id: str = "call_1") -> dict[str, Any]:
    """A tool call in an assistant message."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def message_ids(message: dict[str, Any]) -> list[int]:
    """The ids of a message with its end; parts that a template does not show have none."""
    text = _shown(message.get("content"))
    for call in message.get("tool_calls") or ():
        text += json.dumps([call["function"]["name"], _parsed(call["function"]["arguments"])])
    return [_FIRST_CHARACTER + ord(character) for character in text] + [END]


def _parsed(arguments: str) -> Any:
    """The arguments as an object, so that white space in their JSON has no effect."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _shown(content: Any) -> str:
    """The text of a message; a list of text parts equals their text, other parts are shown as JSON."""
    if not isinstance(content, list):
        return content or ""
    return "".join(part["text"] if part.get("type") == "text" else json.dumps(part) for part in content)


def prompt_ids(messages: list[dict[str, Any]]) -> list[int]:
    """The ids of a chat up to the place where the assistant answers."""
    history = [part for message in messages for part in (ROLES[message["role"]], *message_ids(message))]
    return [*history, ROLES["assistant"]]


def logprob(token: int) -> float:
    """The log probability of every token with this id."""
    return -(token % 50 + 1) / 100


def completion(say: Say, request: dict[str, Any], *, chat: bool, fingerprint: str | None) -> dict[str, Any]:
    """The whole answer to a request."""
    prompt = prompt_of(request, chat=chat)
    says = [say, *say.others] if say.others else [say] * (request.get("n") or 1)
    tokens = sum(len(message_ids(s.message)) for s in says)
    return {
        **_head(request, chat=chat, fingerprint=fingerprint),
        **_prompt_fields(say, request, chat=chat),
        "choices": [_choice(s, index, request, chat=chat) for index, s in enumerate(says)],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": tokens, "total_tokens": len(prompt) + tokens},
    }


def events(say: Say, request: dict[str, Any], *, fingerprint: str | None) -> Iterator[dict[str, Any]]:
    """The same answer as events."""
    chat = "messages" in request
    head = _head(request, chat=chat, fingerprint=fingerprint, streamed=chat)
    first = _prompt_fields(say, request, chat=chat)
    says = [say, *say.others] if say.others else [say] * (request.get("n") or 1)
    for index, one in enumerate(says):
        opening = {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        if chat:
            yield {**head, **first, "choices": [opening]}
        for delta, ids, reason in _pieces(one):
            said = {"delta": delta} if chat else {"text": delta.get("content", "")}
            choice = {"index": index, **said, "finish_reason": reason, **_tokens(ids, request, chat=chat)}
            yield {**head, **({} if chat else first), "choices": [choice]}
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": completion(say, request, chat=chat, fingerprint=None)["usage"]}


def _pieces(say: Say) -> Iterator[tuple[dict[str, Any], list[int], str | None]]:
    """Deltas with their tokens; the last one has the finish reason."""
    ids, content = message_ids(say.message), say.content or ""
    for start in range(0, len(content), _PIECE):
        yield {"content": content[start : start + _PIECE]}, ids[start : min(start + _PIECE, len(content))], None
    rest = ids[len(content) : -1]
    for index, call in enumerate(say.tool_calls):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {"index": index, "id": call["id"], "type": "function", "function": {"name": name, "arguments": ""}}
        yield {"tool_calls": [opening]}, rest, None
        rest = []
        for start in range(0, len(arguments), _PIECE):
            piece = {"index": index, "function": {"arguments": arguments[start : start + _PIECE]}}
            yield {"tool_calls": [piece]}, [], None
    yield {}, ids[-1:], say.reason


def _prompt_fields(say: Say, request: dict[str, Any], *, chat: bool) -> dict[str, Any]:
    if not request.get("return_token_ids"):
        return {}
    broken = {} if say.broken_prefix is None else {"broken_prefix": say.broken_prefix}
    return {"prompt_token_ids": prompt_of(request, chat=chat), **broken}


def prompt_of(request: dict[str, Any], *, chat: bool) -> list[int]:
    """The ids of the prompt."""
    if chat:
        return prompt_ids(request["messages"])
    prompt = request["prompt"]
    return prompt if isinstance(prompt, list) else message_ids({"content": prompt})[:-1]


def _head(request: dict[str, Any], *, chat: bool, fingerprint: str | None, streamed: bool = False) -> dict[str, Any]:
    kind = "chat.completion.chunk" if streamed else "chat.completion" if chat else "text_completion"
    model = request.get("model")
    return {"id": "cmpl-1", "object": kind, "created": 1, "model": model, "system_fingerprint": fingerprint}


def _choice(say: Say, index: int, request: dict[str, Any], *, chat: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"message": say.message} if chat else {"text": say.content}
    return {
        "index": index,
        **said,
        "finish_reason": say.reason,
        **_tokens(message_ids(say.message), request, chat=chat),
        **({"logprobs_temperature": request["temperature"]} if say.tempered else {}),
    }


def _tokens(ids: list[int], request: dict[str, Any], *, chat: bool) -> dict[str, Any]:
    """Logprobs and ids, if the request asks for them."""
    shown: dict[str, Any] = {"logprobs": None}
    if request.get("logprobs") and chat:
        shown["logprobs"] = {
            "content": [{"token": _text(t), "logprob": logprob(t), "bytes": [], "top_logprobs": []} for t in ids],
            "refusal": None,
        }
    elif request.get("logprobs") is not None and not chat:
        shown["logprobs"] = {"tokens": [_text(t) for t in ids], "token_logprobs": [logprob(t) for t in ids]}
    if request.get("return_token_ids"):
        shown["token_ids"] = ids
    return shown


def _text(token: int) -> str:
    return chr(token - _FIRST_CHARACTER) if token >= _FIRST_CHARACTER else ""

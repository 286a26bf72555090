"""Read a whole response, or the events of a stream. Pure.

Fields that only the recording requested are hidden from the agent: it is trained with the responses that it gets in
production, and its framework spends no time on the rest.
"""

import json
from typing import Any

from pydantic.dataclasses import dataclass
from pydantic_core import from_json, to_json

from nat.capture.request import CallRequest, Message
from nat.http.sse import DATA, event_data
from nat.secrets import excerpt
from nat.wire.sampling import read_sampling

_OF_TOKENS = ("prompt_token_ids", "token_ids", "broken_prefix", "lost_call")
_MARKS = (b'"logprobs"', b'token_ids"', b'"broken_prefix"', b'"lost_call"')


class UnreadableAnswer(ValueError):
    """The server answered 200, but not with a completion; the message quotes the body."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers to a request."""

    conversation: int
    """Number of the request's conversation that it continues."""
    raw: dict[str, Any]
    """The JSON object that the server sent."""
    message: Message
    finish_reason: str | None
    logprobs: list[float] | None
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None
    logprobs_temperature: float
    """Of the distribution that the log probabilities are of, if the server reports it (ours does); else 1."""
    broken_prefix: str | None
    """Why the prompt does not continue the sampled tokens, if the server reports it (ours does)."""
    lost_call: str | None
    """Why a tool call stayed text, if the server reports it (ours does)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All choices of one response."""

    choices: list[Choice]
    usage: dict[str, Any]
    policy_version: str | None


def read_completion(body: bytes) -> dict[str, Any]:
    """The completion object of an unstreamed answer."""
    try:
        completion = from_json(body)
    except ValueError as error:
        raise UnreadableAnswer(f"the answer is not JSON: {excerpt(repr(body), 200)}") from error
    if not isinstance(completion, dict):
        raise UnreadableAnswer(f"the answer is not a completion: {excerpt(repr(body), 200)}")
    return completion


def error_text(body: bytes) -> str:
    """The message of a response with an error status: OpenAI's `error.message`, else the whole text."""
    text = body.decode(errors="replace")
    try:
        error = from_json(text)["error"]
        return str(error["message"])
    except (ValueError, KeyError, TypeError):
        return text


def read_answer(completion: dict[str, Any], request: CallRequest) -> Answer:
    """The choices of a completion, in the order of their index."""
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        raise UnreadableAnswer(f"the answer has no choices: {excerpt(json.dumps(completion), 200)}")
    ordered = sorted(choices, key=lambda choice: choice.get("index", 0))
    return Answer(
        choices=[_read_choice(choice, completion, request) for choice in ordered],
        usage=completion.get("usage") or {},
        policy_version=completion.get("system_fingerprint"),
    )


def _read_choice(choice: dict[str, Any], completion: dict[str, Any], request: CallRequest) -> Choice:
    conversation = min(choice.get("index", 0) // request.choices_per_conversation, len(request.conversations) - 1)
    prompt_ids = choice.get("prompt_token_ids") or completion.get("prompt_token_ids")
    if prompt_ids is None and request.prompt_ids is not None:
        prompt_ids = request.prompt_ids[conversation]
    message = choice.get("message") if request.chat else {"content": choice.get("text")}
    return Choice(
        conversation=conversation,
        raw=choice,
        message=plain_message(message or {}),
        finish_reason=choice.get("finish_reason"),
        logprobs=_logprobs(choice.get("logprobs")),
        prompt_token_ids=prompt_ids,
        token_ids=choice.get("token_ids"),
        logprobs_temperature=read_sampling({"temperature": choice.get("logprobs_temperature")}).temperature,
        broken_prefix=completion.get("broken_prefix"),
        lost_call=choice.get("lost_call"),
    )


def plain_message(message: Message) -> Message:
    """The assistant's message without nulls and empty lists, in which servers differ."""
    fields = {key: value for key, value in message.items() if value is not None and value != []}
    content = fields.pop("content", None)
    if content == "" and "tool_calls" in fields:
        content = None
    return {"role": fields.pop("role", "assistant"), "content": content, **fields}


def _logprobs(logprobs: dict[str, Any] | None) -> list[float] | None:
    """One number for each sampled token; None if one is missing, since the others could not be assigned."""
    if logprobs is None:
        return None
    if (content := logprobs.get("content")) is not None:
        return [token["logprob"] for token in content]
    numbers = logprobs.get("token_logprobs")
    return None if numbers is None or None in numbers else numbers


@dataclass(frozen=True, slots=True)
class HiddenFields:
    """The fields that are hidden from the agent."""

    logprobs: bool = False
    token_ids: bool = False

    def __bool__(self) -> bool:
        return self.logprobs or self.token_ids

    def removed(self, text: bytes) -> bytes:
        """A completion, or a line of a stream, without them; unchanged if it has none, or is not JSON."""
        if not any(mark in text for mark in _MARKS):
            return text
        prefix = DATA + b" " if text.startswith(DATA) else b""
        try:
            completion = from_json(text[len(DATA) :] if prefix else text, cache_strings="keys")
        except ValueError:
            return text
        return prefix + to_json(self._without(completion)) if isinstance(completion, dict) else text

    def _without(self, completion: dict[str, Any]) -> dict[str, Any]:
        choices = completion.get("choices")
        for part in (completion, *(choices if isinstance(choices, list) else ())):
            if not isinstance(part, dict):
                continue
            if self.token_ids:
                for key in _OF_TOKENS:
                    part.pop(key, None)
            if self.logprobs and "logprobs" in part:
                part["logprobs"] = None
                part.pop("logprobs_temperature", None)
        return completion


class ResponseFilter:
    """Filters a response in the chunks that it arrives in; each line is passed on as soon as it is complete."""

    def __init__(self, hidden: HiddenFields, *, events: bool) -> None:
        """`events` is True for a stream; any other response is held back until its end."""
        self._hidden = hidden
        self._events = events
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """The complete lines that the agent gets after this chunk."""
        if not self._hidden:
            return chunk
        self._rest += chunk
        if not self._events:
            return b""
        *lines, self._rest = self._rest.split(b"\n")
        return b"".join(self._hidden.removed(line) + b"\n" for line in lines)

    def end(self) -> bytes:
        """The rest, at the end of the response."""
        return self._hidden.removed(self._rest)


_WHOLE = frozenset({"role", "type", "id", "name", "object", "finish_reason", "stop_reason"})
"""Texts that arrive whole (some servers repeat them in each event); all others are concatenated."""
_MOST_CALLS = 10_000
"""Tools that one answer may call; a larger index would make as many empty calls."""


def join_events(body: bytes) -> dict[str, Any]:
    """The completion object of a streamed response.

    Raises UnreadableAnswer if the stream ended early or carried an error.
    """
    completion: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    done = False
    for line in body.split(b"\n"):  # a third of the time that a regular expression takes for a stream of tokens
        data = event_data(line)
        if data is None:
            continue
        if data == b"[DONE]":
            done = True
            break
        event = _read_event(data)
        completion |= {key: value for key, value in event.items() if key != "choices" and value is not None}
        for part in event.get("choices") or ():
            index = part.get("index", 0)
            _add_choice(choices.setdefault(index, {"index": index}), part)
    finished = choices and all(choice.get("finish_reason") for choice in choices.values())
    if not (done or finished):
        raise UnreadableAnswer(f"the stream ended before the answer did, after {len(body)} bytes")
    completion["choices"] = [choices[index] for index in sorted(choices)]
    return completion


def _read_event(data: bytes) -> dict[str, Any]:
    try:
        event = from_json(data)
    except ValueError as error:
        raise UnreadableAnswer(f"an event of the stream is not JSON: {excerpt(repr(data), 200)}") from error
    if not isinstance(event, dict):
        raise UnreadableAnswer(f"an event of the stream is not an object: {excerpt(repr(data), 200)}")
    if event.get("error"):
        raise UnreadableAnswer(f"the stream carried an error: {excerpt(json.dumps(event['error']), 500)}")
    return event


def _add_choice(choice: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if value is None or key == "index":
            continue
        if key == "delta":
            _add_delta(choice.setdefault("message", {}), value)
        elif key == "text":
            choice["text"] = choice.get("text", "") + value
        elif key == "token_ids":
            choice.setdefault("token_ids", []).extend(value)
        elif key == "logprobs":
            _add_lists(choice.setdefault("logprobs", {}), value)
        else:
            choice[key] = value


def _add_lists(target: dict[str, Any], source: dict[str, Any]) -> None:
    for key, value in source.items():
        if isinstance(value, list):
            target.setdefault(key, []).extend(value)


def _add_delta(target: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if value is None:
            continue
        if key == "tool_calls":
            _add_tool_calls(target.setdefault("tool_calls", []), value)
        elif isinstance(value, dict):
            _add_delta(target.setdefault(key, {}), value)
        elif isinstance(value, list):
            target.setdefault(key, []).extend(value)
        elif isinstance(value, str) and key not in _WHOLE:
            target[key] = target.get(key, "") + value
        elif value != "" or key not in target:
            target[key] = value


def _add_tool_calls(calls: list[dict[str, Any]], parts: list[dict[str, Any]]) -> None:
    """Parts of one call have the same index, which an unstreamed completion does not contain."""
    for part in parts:
        index = part.get("index", len(calls))
        if index > _MOST_CALLS:
            raise UnreadableAnswer(f"the index of a tool call is above {_MOST_CALLS}")
        calls += [{} for _ in range(len(calls), index + 1)]
        _add_delta(calls[index], {key: value for key, value in part.items() if key != "index"})

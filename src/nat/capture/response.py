"""Read a whole response, or the events of a stream. Pure.

Fields that only the recording requested are hidden from the agent: it is trained with the responses that it gets in
production, and its framework spends no time on the rest.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from nat.capture.request import CallRequest, Message
from nat.data_models.llm_call import LLMCall
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
    call: LLMCall
    """What the server says of it, validated; the request's messages and tools are to be added."""


def read_completion(body: bytes) -> dict[str, Any]:
    """The completion object of an unstreamed answer."""
    completion = None
    with suppress(ValueError):
        completion = from_json(body)
    if not isinstance(completion, dict):
        raise UnreadableAnswer(f"the answer is not a JSON object: {excerpt(repr(body), 200)}")
    return completion


def error_text(body: bytes) -> str:
    """The message of a response with an error status: OpenAI's `error.message`, else the whole text."""
    text = body.decode(errors="replace")
    try:
        error = from_json(text)["error"]
        return str(error["message"])
    except (ValueError, KeyError, TypeError):
        return text


def read_choices(completion: dict[str, Any], request: CallRequest) -> list[Choice]:
    """The choices of a completion, in the order of their index."""
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        raise UnreadableAnswer(f"the answer has no choices: {excerpt(json.dumps(completion), 200)}")
    ordered = sorted(choices, key=lambda choice: choice.get("index", 0))
    return [_read_choice(choice, completion, request) for choice in ordered]


def _read_choice(choice: dict[str, Any], completion: dict[str, Any], request: CallRequest) -> Choice:
    conversation = min(choice.get("index", 0) // request.choices_per_conversation, len(request.conversations) - 1)
    prompt_ids = choice.get("prompt_token_ids") or completion.get("prompt_token_ids")
    if prompt_ids is None and request.prompt_ids is not None:
        prompt_ids = request.prompt_ids[conversation]
    message = choice.get("message") if request.chat else {"content": choice.get("text")}
    call = LLMCall(
        model=request.model,
        messages=[],
        message=plain_message(message or {}),
        finish_reason=choice.get("finish_reason"),
        logprobs=_logprobs(choice.get("logprobs")),
        logprobs_temperature=read_sampling({"temperature": choice.get("logprobs_temperature")}).temperature,
        prompt_token_ids=prompt_ids,
        token_ids=choice.get("token_ids"),
        policy_version=completion.get("system_fingerprint"),
        broken_prefix=completion.get("broken_prefix"),
        lost_call=choice.get("lost_call"),
    )
    return Choice(conversation, choice, call)


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

    def are_in(self, text: bytes) -> bool:
        """False if the text has none of them for certain, which saves reading it."""
        return bool(self) and any(mark in text for mark in _MARKS)

    def removed(self, completion: dict[str, Any]) -> bytes:
        """The text of a completion, or of an event, which loses them."""
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
        return to_json(completion)


class ResponseReader:
    """Joins a response from the chunks that it arrives in, and gives the agent each line as soon as it is complete.

    The lines from the end of the answer on are held back until the server has sent everything. So the call is recorded,
    with its usage, and the connection free, before the agent sees that it may leave.
    """

    def __init__(self, request: CallRequest, hidden: HiddenFields, *, events: bool) -> None:
        """`events` is True for a stream; any other response is held back until its end."""
        self._done = False
        self._expected = request.choices_per_conversation * len(request.conversations)
        self._hidden = hidden
        self._events = events
        self._rest = self._held = b""
        self._completion: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._problem: Exception | None = None

    def feed(self, chunk: bytes) -> bytes:
        """The lines that the agent gets after this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n") if self._events else (self._rest + chunk,)
        self._held += b"".join(self._line(line) + b"\n" for line in lines)
        if self._done or self.is_finished:
            return b""
        visible, self._held = self._held, b""
        return visible

    def end(self) -> bytes:
        """What the agent gets at the end of the response."""
        if self._events:
            return self._held + self._line(self._rest)
        with suppress(ValueError):
            if self._hidden.are_in(self._rest) and isinstance(completion := from_json(self._rest), dict):
                return self._hidden.removed(completion)
        return self._rest

    @property
    def is_finished(self) -> bool:
        """Every choice of the stream has its finish reason."""
        return len(self._choices) >= self._expected and all(c.get("finish_reason") for c in self._choices.values())

    def completion(self, *, left: bool = False) -> dict[str, Any]:
        """The completion object; if its agent has `left` the stream, as far as it was received.

        Raises UnreadableAnswer if the response ended early or carried an error.
        """
        if not self._events:
            return read_completion(self._rest)
        if self._problem is not None:
            raise self._problem
        choices = self._choices
        if not (self._done or self.is_finished):
            if not left:
                raise UnreadableAnswer("the stream ended before the answer did")
            choices = {index: choice for index, choice in choices.items() if _has_begun(choice)}
            if not choices:
                raise UnreadableAnswer("the agent left the stream before its first token")
        return {**self._completion, "choices": [choices[index] for index in sorted(choices)]}

    def _line(self, line: bytes) -> bytes:
        """Add what a line says; returns it as the agent sees it."""
        data = event_data(line)
        if not data or self._done:
            return line
        if data == b"[DONE]":
            self._done = True
            return line
        try:
            event = _read_event(data)
            self._completion |= {key: value for key, value in event.items() if key != "choices" and value is not None}
            for part in event.get("choices") or ():
                index = part.get("index", 0)
                _add_choice(self._choices.setdefault(index, {"index": index}), part)
        except (ValueError, TypeError, AttributeError, LookupError) as error:  # JSON of any other shape
            self._problem = self._problem or error
            return line
        return DATA + b" " + self._hidden.removed(event) if self._hidden.are_in(data) else line


def _has_begun(choice: dict[str, Any]) -> bool:
    """True if a token has come; the first event may have the role alone."""
    said = (value for key, value in choice.get("message", {}).items() if key != "role")
    return any(said) or any(choice.get(key) for key in ("text", "token_ids", "finish_reason"))


_WHOLE = frozenset({"role", "type", "id", "name", "object", "finish_reason", "stop_reason"})
"""Texts that arrive whole (some servers repeat them in each event); all others are concatenated."""
_MOST_CALLS = 10_000
"""Tools that one answer may call; a larger index would make as many empty calls."""


def _read_event(data: bytes) -> dict[str, Any]:
    event = None
    with suppress(ValueError):
        event = from_json(data, cache_strings="keys")
    if not isinstance(event, dict):
        raise UnreadableAnswer(f"an event of the stream is not a JSON object: {excerpt(repr(data), 200)}")
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
            known = choice.setdefault("logprobs", {})
            for name, entries in value.items():
                if isinstance(entries, list):
                    known.setdefault(name, []).extend(entries)
        else:
            choice[key] = value


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

"""Join the events of a streamed response into the completion that it would be without streaming. Pure."""

import json
from typing import Any

from pydantic_core import from_json

from nat.capture.response import UnreadableAnswer
from nat.http.sse import event_data
from nat.secrets import excerpt

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

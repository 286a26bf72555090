"""Compare the captured calls of a rollout with the server's log. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.frameworks.server import Served

FUNCTIONS = {"expertise": "expert"}
"""Functions that make the calls of some scenes; the workflow makes all others."""
WORKFLOW = "<workflow>"


def differences(served: Sequence[Served], captured: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe every field in which the n-th answered call of a rollout and the n-th captured one differ."""
    answered = [call for call in served if call.completion is not None]
    found = [] if len(answered) == len(captured) else [f"{len(answered)} calls made, {len(captured)} captured"]
    for number, (made, seen) in enumerate(zip(answered, captured, strict=False)):
        told = f"call {number} ({made.scene})"
        captured_fields = seen["call"] | {"function": seen["function"], "choice": seen["choice"]}
        for field, wanted in _expected(made):
            has = _text(captured_fields[field])
            if has != _text(wanted):
                found.append(f"{told}: {field} is {has[:300]}, the server's {_text(wanted)[:300]}")
    return found


def rows_of(served: Sequence[Served]) -> int:
    """Count rows: a call that continues the tokens of an earlier one joins its row; the longest such row wins."""
    ends: list[list[int]] = []
    for call in served:
        if call.completion is None:
            continue
        choice = call.completion["choices"][0]
        prompt = call.completion["prompt_token_ids"]
        continued = [end for end in ends if prompt[: len(end)] == end]
        if continued:
            ends.remove(max(continued, key=len))
        ends.append(prompt + choice["token_ids"])
    return len(ends)


def _expected(made: Served) -> Iterator[tuple[str, Any]]:
    """The fields that the captured call should have, from the request's and the response's body."""
    assert made.completion is not None
    choice, chat = made.completion["choices"][0], made.chat
    said = {key: value for key, value in choice["message"].items() if value is not None}
    yield "messages", chat["messages"]
    yield "tools", chat.get("tools") or None
    yield "message", {"content": None, **said}
    yield "finish_reason", choice["finish_reason"]
    yield "logprobs", [token["logprob"] for token in choice["logprobs"]["content"]]
    yield "choice", _joined(choice) if made.streamed else choice
    yield "prompt_token_ids", made.completion["prompt_token_ids"]
    yield "token_ids", choice["token_ids"]
    yield "model", chat["model"]
    yield "policy_version", made.completion["system_fingerprint"]
    yield "llm_name", "student"
    yield "function", FUNCTIONS.get(made.scene, WORKFLOW)


def _joined(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The choice as its stream gives it, without null fields."""
    message = {key: value for key, value in choice["message"].items() if value is not None}
    logprobs = {key: value for key, value in choice["logprobs"].items() if value is not None}
    return {**choice, "message": {"content": "", **message}, "logprobs": logprobs}


def _text(value: Any) -> str:
    """JSON text of a value, independent of the order of keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

"""Read an answer as it came over the wire, whole. Pure; `events` makes a stream whole first."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from nat.capture.request import CallRequest, Message
from nat.secrets import excerpt
from nat.wire.sampling import read_sampling


class UnreadableAnswer(ValueError):
    """The server answered 200 with something that is no completion; the message says with what."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers to a request."""

    conversation: int
    """Which of the request's conversations it goes on with."""
    raw: dict[str, Any]
    """As the server sent it."""
    message: Message
    finish_reason: str | None
    logprobs: list[float] | None
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None
    logprobs_temperature: float
    """Of the distribution that the log probabilities are of, if the server says so (ours does); else 1."""
    broken_prefix: str | None
    """Why the prompt does not go on with tokens that were sampled, if the server says so (ours does)."""


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
    """What an answer with an error status says: the message if it is in OpenAI's shape, else its text."""
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
    ordered = sorted(choices, key=_index)
    return Answer(
        choices=[_read_choice(choice, completion, request) for choice in ordered],
        usage=completion.get("usage") or {},
        policy_version=completion.get("system_fingerprint"),
    )


def _index(choice: dict[str, Any]) -> int:
    index: int = choice.get("index", 0)
    return index


def _read_choice(choice: dict[str, Any], completion: dict[str, Any], request: CallRequest) -> Choice:
    conversation = min(_index(choice) // request.choices_per_conversation, len(request.conversations) - 1)
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
    )


def plain_message(message: Message) -> Message:
    """The assistant's message without what it does not say: servers differ in the nulls and empty lists they send."""
    said = {key: value for key, value in message.items() if value is not None and value != []}
    content = said.pop("content", None)
    if content == "" and "tool_calls" in said:
        content = None
    return {"role": said.pop("role", "assistant"), "content": content, **said}


def _logprobs(logprobs: dict[str, Any] | None) -> list[float] | None:
    """One number for each sampled token; None if one is missing, since then they belong to other tokens."""
    if logprobs is None:
        return None
    content = logprobs.get("content")
    if content is not None:
        return [token["logprob"] for token in content]
    numbers = logprobs.get("token_logprobs")
    if numbers is None or None in numbers:
        return None
    return list(numbers)

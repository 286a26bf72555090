"""Read a request as it is sent over the wire, and add the fields that it lacks. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from nat.capture.context import CapturePolicy
from nat.wire.sampling import read_count

Message = dict[str, Any]
_SYSTEM_ROLES = ("system", "developer")
_OF_CHATS = ("logprobs", "top_logprobs", "chat_template_kwargs")
"""Fields that a completion does not have, or has with another meaning."""
_SAME_MEANING = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of one limit: if one is set, the other gets no default."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One request for completions; most have one conversation and one choice."""

    fields: dict[str, Any]
    """The JSON object of the request."""
    conversations: list[list[Message]]
    """The messages of a chat, or one user message for each prompt of a completion."""
    chat: bool
    """Whether it went to …/chat/completions; else to …/completions."""

    @property
    def model(self) -> str:
        return str(self.fields.get("model", ""))

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        return self.fields.get("tools") or None

    @property
    def choices_per_conversation(self) -> int:
        return read_count(self.fields.get("n")) or 1

    @property
    def prompt_ids(self) -> list[list[int]] | None:
        """The ids of the prompts, if the agent tokenised them itself."""
        if self.chat:
            return None
        prompt = self.fields.get("prompt")
        if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], str):
            return None
        return prompt if isinstance(prompt[0], list) else [prompt]


def is_call_route(path: str) -> bool:
    """True for a route of completions."""
    return path.rstrip("/").endswith("/completions")


def read_request(path: str, body: bytes) -> CallRequest | None:
    """The call that was sent to such a route; None if it is malformed."""
    try:
        fields = from_json(body)
    except ValueError:  # the server will report it; there is no call to record
        return None
    if not isinstance(fields, dict):
        return None
    if path.rstrip("/").endswith("/chat/completions"):
        messages = fields.get("messages")
        if not isinstance(messages, list):
            return None
        return CallRequest(fields, [messages], chat=True)
    prompts: Any = fields.get("prompt")  # one text, one list of ids, or a list of either
    if not (isinstance(prompts, list) and prompts and isinstance(prompts[0], str | list)):
        prompts = [prompts]
    return CallRequest(fields, [[{"role": "user", "content": each}] for each in prompts], chat=False)


def missing_defaults(
    fields: Mapping[str, Any], *, chat: bool, defaults: Mapping[str, Any], seed: int | None
) -> dict[str, Any]:
    """The LLM's defaults for the fields that the agent left unset, and the seed."""
    wanted = {key: value for key, value in defaults.items() if chat or key not in _OF_CHATS}
    if not chat and defaults.get("logprobs"):  # a completion requests them by number, a chat by flag and number
        wanted["logprobs"] = defaults.get("top_logprobs") or 1
    if seed is not None:
        wanted["seed"] = seed
    given = {key for key, value in fields.items() if value is not None}
    return {key: value for key, value in wanted.items() if given.isdisjoint({key, _SAME_MEANING.get(key)})}


def recording_fields(fields: Mapping[str, Any], *, chat: bool, policy: CapturePolicy) -> dict[str, Any]:
    """The fields that the policy requires and the request lacks, even if the agent set them to null or false."""
    requested = fields.get("logprobs")
    added: dict[str, Any] = {}
    if policy.logprobs and (requested is not True if chat else requested is None):
        added["logprobs"] = True if chat else 1
    if policy.token_ids and fields.get("return_token_ids") is not True:
        added["return_token_ids"] = True
    return added


def with_fields(body: bytes, fields: Mapping[str, Any], added: Mapping[str, Any]) -> bytes:
    """The body with the fields added at its end: serialising a long history again costs more than the call.

    A field that the body has already (`"logprobs": null`) must not occur twice; then the body is serialised again.
    """
    if not added:
        return body
    if any(key in fields for key in added):
        return _dumps({**fields, **added})
    if not fields:
        return _dumps(added)
    end = body.rindex(b"}")
    return body[:end] + b"," + _dumps(added)[1:]


def with_model(body: bytes, fields: Mapping[str, Any], model: str) -> bytes:
    """The body with another model's name, replaced in place if it occurs once; else the body is serialised again.

    Quotes inside texts are escaped, so `"model"` in a body is a key; where it occurs several times, another object may
    hold the same pair.
    """
    old = _dumps({"model": fields["model"]})[1:-1]
    if body.count(old) == 1 == body.count(b'"model"'):
        return body.replace(old, _dumps({"model": model})[1:-1])
    return _dumps({**fields, "model": model})


def with_system_text(request: CallRequest, body: bytes, text: str) -> tuple[CallRequest, bytes]:
    """The chat and its body with `text` in the system message; unchanged if it is there."""
    [messages] = request.conversations
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    place = next((number for number, role in enumerate(roles) if role in _SYSTEM_ROLES), None)
    if place is None:
        messages = [{"role": "system", "content": text}, *messages]
    else:
        old = messages[place].get("content") or ""
        if text in str(old):
            return request, body
        new = f"{old}\n{text}" if isinstance(old, str) else [*old, {"type": "text", "text": text}]
        messages = [*messages[:place], {**messages[place], "content": new}, *messages[place + 1 :]]
    fields = {**request.fields, "messages": messages}
    return replace(request, fields=fields, conversations=[messages]), _dumps(fields)


def _dumps(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

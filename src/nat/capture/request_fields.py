"""Adds fields to a request: the defaults of the LLM, and what a recording needs. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from nat.capture.policy import CapturePolicy

_SAME_MEANING = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""Two names of one limit: whoever set the one needs no default for the other."""


def left_out(fields: Mapping[str, Any], *, chat: bool, defaults: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """The LLM's own defaults for what the author did not say, and the seed."""
    wanted = _for_route(defaults, chat=chat)
    if seed is not None:
        wanted["seed"] = seed
    return {key: value for key, value in wanted.items() if _is_unset(fields, key)}


def not_asked(fields: Mapping[str, Any], *, chat: bool, policy: CapturePolicy) -> dict[str, Any]:
    """What the policy asks for and the request, with its defaults, does not, even where its author declined it."""
    asked = fields.get("logprobs")
    added: dict[str, Any] = {}
    if policy.logprobs and (asked is not True if chat else asked is None):
        added["logprobs"] = True if chat else 1
    if policy.token_ids and fields.get("return_token_ids") is not True:
        added["return_token_ids"] = True
    return added


def with_fields(body: bytes, fields: Mapping[str, Any], added: Mapping[str, Any]) -> bytes:
    """The body with the fields added: spliced in at its end, as writing a long history anew costs more than the call.

    A field that is there already (`"logprobs": null`) must not stand there twice; then the body is written anew.
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
    """The body with another model's name: written over the old one where it stands, else the body is written anew.

    Quotes inside of texts are escaped, so the only `"model"` of a body is its own key; where there are several, another
    object may hold the same pair.
    """
    asked = _dumps({"model": fields["model"]})[1:-1]
    if body.count(asked) == 1 == body.count(b'"model"'):
        return body.replace(asked, _dumps({"model": model})[1:-1])
    return _dumps({**fields, "model": model})


def _for_route(defaults: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
    """A completion asks for logprobs by number; a chat by flag and number."""
    if chat:
        return dict(defaults)
    wanted = {key: value for key, value in defaults.items() if key not in ("logprobs", "top_logprobs")}
    if defaults.get("logprobs"):
        wanted["logprobs"] = defaults.get("top_logprobs") or 1
    return wanted


def _is_unset(fields: Mapping[str, Any], key: str) -> bool:
    twin = _SAME_MEANING.get(key)
    return fields.get(key) is None and (twin is None or fields.get(twin) is None)


def _dumps(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

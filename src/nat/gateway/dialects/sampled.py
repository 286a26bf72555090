"""Tool arguments as the model wrote them, for agents that send them back as objects. Pure.

An object has lost what its text was: spaces, the order of escapes, numbers as `1.0`. Written anew it is other tokens
than those that were sampled, so the text is kept under the call's id for as long as the rollout lives.
"""

import json
from typing import Any

from pydantic_core import from_json

from nat.gateway.dialects import Memory

_KEY = "arguments"


def as_object(arguments: str) -> dict[str, Any]:
    """The arguments as an object: of JSON that broke off what there is, of what is no object at all nothing."""
    try:
        value = from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def remember_arguments(memory: Memory, call_id: str, arguments: str) -> None:
    """Keep the text of a call that the agent is now told of; some servers count their ids from 0 in every answer."""
    memory.setdefault(_KEY, {}).setdefault(call_id, []).append((arguments, as_object(arguments)))


def arguments_text(memory: Memory, call_id: str, given: dict[str, Any]) -> str:
    """The text that was sampled if the agent sends the same object back, else the object's own."""
    texts: list[tuple[str, dict[str, Any]]] = memory.get(_KEY, {}).get(call_id, [])
    same = [text for text, value in texts if value == given]
    return same[-1] if same else json.dumps(given, ensure_ascii=False)

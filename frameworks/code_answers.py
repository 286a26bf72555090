"""The script for agents that act by code: what others are told as calls of tools, these are told as Python. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_OPEN, _CLOSE = "<code>", "</code>"


def wants_code(body: Mapping[str, Any]) -> bool:
    """True if the system prompt says how code is to be marked."""
    return any(_OPEN in str(message["content"]) for message in body["messages"] if message["role"] == "system")


def calls_in_code(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Code that calls tools and prints what they return."""
    return _block(f"print({name}(**{dict(arguments)!r}))" for name, arguments in calls)


def finish_in_code(text: str) -> str:
    """Code that gives the final answer."""
    return _block([f"final_answer({text!r})"])


def _block(lines: Iterable[str]) -> str:
    return "\n".join(["I know what to do.", _OPEN, *lines, _CLOSE])

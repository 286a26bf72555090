"""Removes from a response the fields that only the recording asked for. Pure.

So an agent is trained with the answers that it gets in production, and its framework spends no time on the rest.
"""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

_DATA = b"data:"
_OF_TOKENS = ("prompt_token_ids", "token_ids", "broken_prefix")
_MARKS = (b'"logprobs"', b'token_ids"', b'"broken_prefix"')


@dataclass(frozen=True, slots=True)
class HiddenFields:
    """What is left out of the answers to a request."""

    logprobs: bool = False
    token_ids: bool = False

    def __bool__(self) -> bool:
        return self.logprobs or self.token_ids

    def removed(self, text: bytes) -> bytes:
        """A completion, or a line of a stream; as it is if there is nothing to leave out, or it cannot be read."""
        if not self or not any(mark in text for mark in _MARKS):
            return text
        prefix = _DATA + b" " if text.startswith(_DATA) else b""
        try:
            completion = from_json(text[len(_DATA) :] if prefix else text, cache_strings="keys")
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
    """An answer in the pieces that it comes in; each is shown as soon as its lines are whole."""

    def __init__(self, hidden: HiddenFields, *, events: bool) -> None:
        """`events` says that it is a stream; of another answer nothing is shown before its end."""
        self._hidden = hidden
        self._events = events
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be shown with this piece."""
        if not self._hidden:
            return piece
        self._rest += piece
        if not self._events:
            return b""
        *lines, self._rest = self._rest.split(b"\n")
        return b"".join(self._hidden.removed(line) + b"\n" for line in lines)

    def end(self) -> bytes:
        """What is left when the answer is over."""
        return self._hidden.removed(self._rest)

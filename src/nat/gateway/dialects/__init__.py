"""The APIs that agents speak, each translated to chat completions and back. Pure: no HTTP, no clock.

A dialect is a module with the functions of `Dialect`; upstream there is only `/v1/chat/completions`.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic_core import from_json

from nat.http.errors import ApiError

Body = dict[str, Any]
"""A JSON object of the wire."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A response with the request for it; the turns before it are found by `previous`."""

    previous: str | None
    items: list[Body]
    """The input, as the agent sent it."""
    message: Body
    """The answer as a chat's message."""


@dataclass(slots=True)
class DialectMemory:
    """Responses and items of a rollout that later calls may refer to."""

    turns: dict[str, Turn] = field(default_factory=dict)
    """Stored responses by their id."""
    items: dict[str, Body] = field(default_factory=dict)
    """Output items of the stored responses by their id."""
    _ids: Counter[str] = field(default_factory=Counter)
    _arguments: dict[str, list[tuple[str, Body]]] = field(default_factory=dict)

    def unique_id(self, given: str) -> str:
        """The server's id, numbered if it was used before, since agents join answers that have the same id."""
        self._ids[given] += 1
        return given if self._ids[given] == 1 else f"{given}-{self._ids[given]}"

    def keep_arguments(self, call_id: str, arguments: str) -> None:
        """Keep the text of a call's arguments; some servers count their ids from 0 in every answer.

        An agent may send them back as an object, which has lost spaces, the order of escapes, numbers as `1.0`.
        Serialised again, it has other tokens than the sampled ones.
        """
        self._arguments.setdefault(call_id, []).append((arguments, parse_arguments(arguments)))

    def arguments_text(self, call_id: str, given: Body) -> str:
        """The sampled text if the agent sends the same object back, else the object as JSON."""
        same = [text for text, value in self._arguments.get(call_id, ()) if value == given]
        return same[-1] if same else json.dumps(given, ensure_ascii=False)


def parse_arguments(text: str) -> Body:
    """Tool arguments as an object; truncated JSON gives the complete part, anything else an empty object."""
    try:
        value = from_json(text, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class Untranslatable(ApiError):
    """The request has no equivalent chat; the message names the field, the value and the expectation."""


class BrokenOrder(ValueError):
    """A server continued a tool call after it had begun the next part; the dialect's events cannot express that."""


class AnswerStream(Protocol):
    """One answer in events, made from the chunks of a chat completion as they come."""

    def push(self, chunk: Body) -> bytes:
        """The events that follow from this chunk, which may be none.

        Raises:
            BrokenOrder: the answer breaks off here.

        """

    def finish(self) -> bytes:
        """The last events of a complete answer, after the last chunk."""

    def fail(self, message: str) -> bytes:
        """The last events, instead of `finish`, if the answer breaks off: the status 200 is already sent."""


class Dialect(Protocol):
    """One API; a module of these functions."""

    def to_chat(self, body: Body, memory: DialectMemory) -> Body:
        """The request as a chat-completions request, `stream` and `model` included; `body` stays as it is.

        Raises:
            Untranslatable: it is answered with status 400.

        """

    def from_chat(self, completion: Body, request: Body, memory: DialectMemory) -> Body:
        """The whole answer to `request`, with its name of the model."""

    def stream(self, request: Body, memory: DialectMemory) -> AnswerStream:
        """The same answer in events; `request` has `stream: true`."""

    def error(self, failure: ApiError) -> tuple[int, Body]:
        """Status and body of an error; clients of the dialect may know other statuses than OpenAI's."""

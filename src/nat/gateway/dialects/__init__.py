"""The APIs that agents speak, each told in chat completions and back. Pure: no HTTP, no clock.

A dialect is a module with the functions of `Dialect`; upstream there is only `/v1/chat/completions`.
"""

from typing import Any, Protocol

from nat.http.errors import ApiError

Body = dict[str, Any]
"""A JSON object of the wire."""

Memory = dict[str, Any]
"""What a dialect keeps from one call of a rollout to the next (conversations that a later call names by an id)."""


class Untranslatable(ValueError):
    """A request that has no meaning as a chat; the message tells the agent which field, what was seen and wanted."""


class BrokenOrder(ValueError):
    """A server went on with a tool call after it had begun the next part; the dialect's events cannot say that."""


class Stream(Protocol):
    """One answer in events, made from the chunks of a chat completion as they come."""

    def push(self, chunk: Body) -> bytes:
        """The events that are due after this chunk; none yet is fine.

        Raises:
            BrokenOrder: the answer breaks off here.

        """

    def finish(self) -> bytes:
        """The last events of a complete answer, after the last chunk."""

    def fail(self, message: str) -> bytes:
        """What to say, instead of `finish`, when the answer breaks off: the head with status 200 is long sent."""


class Dialect(Protocol):
    """One API; a module of these functions."""

    def to_chat(self, body: Body, memory: Memory) -> Body:
        """The request as a chat-completions request, `stream` and `model` included; `body` stays as it is.

        Raises:
            Untranslatable: it is answered with status 400.

        """

    def from_chat(self, completion: Body, asked: Body, memory: Memory) -> Body:
        """The whole answer to the request `asked`, naming the model as it did."""

    def stream(self, asked: Body, memory: Memory) -> Stream:
        """The same answer in events; `asked` has `stream: true`."""

    def error(self, failure: ApiError) -> tuple[int, Body]:
        """Status and body of an error; clients of the dialect may know other statuses than OpenAI's."""

"""Ask the judge: with a schema if its server takes one, and once more if the reply is no judgement."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nat.errors import EvaluationError
from nat.plugins.relative_judge.prompt import SCHEMA, AttemptScore, Message, correction, parsed

_RESPONSE_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "scores", "strict": True, "schema": SCHEMA},
}
_NOT_TAKEN = (400, 404, 415, 422, 501)
"""Status codes of servers that do not know an option."""


Ask = Callable[[Sequence[Message]], Awaitable[str]]
"""Sends messages and returns the text of the judge's reply."""


class ClientAsk:
    """Asks through an OpenAI client; remembers if the server refuses a schema."""

    def __init__(self, client: Any) -> None:
        """`client` is an `AsyncOpenAI` with a `model_name`; it does the retries."""
        self._client = client
        self._takes_schema = True

    async def __call__(self, messages: Sequence[Message]) -> str:
        from openai import APIStatusError

        if self._takes_schema:
            try:
                return await self._send(messages, response_format=_RESPONSE_FORMAT)
            except APIStatusError as error:
                if error.status_code not in _NOT_TAKEN:
                    raise
            reply = await self._send(messages)  # if it fails too, the schema was not the reason
            self._takes_schema = False
            return reply
        return await self._send(messages)

    async def _send(self, messages: Sequence[Message], **options: Any) -> str:
        client = self._client
        completion = await client.chat.completions.create(model=client.model_name, messages=list(messages), **options)
        if not completion.choices:
            raise EvaluationError("the judge's server sent no choice")
        return completion.choices[0].message.content or ""


async def ask_for_scores(ask: Ask, messages: Sequence[Message], count: int, code: str) -> list[AttemptScore]:
    """The scores of `count` attempts; a reply without the code or else unusable is answered once.

    Raises:
        EvaluationError: the second reply cannot be used either.

    """
    first = await ask(messages)
    try:
        return parsed(first, count, code)
    except EvaluationError as error:
        problem = error.message
    again = [*messages, {"role": "assistant", "content": first}, correction(problem)]
    try:
        return parsed(await ask(again), count, code)
    except EvaluationError as error:
        raise EvaluationError(f"the judge gave no valid scores in two replies: {error.message}") from error

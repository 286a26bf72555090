"""Send the calls of an LLM to its server, which only the configuration chooses."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from pydantic_core import to_json

from nat.capture.http import CapturingAsyncClient
from nat.capture.response import UnreadableAnswer, error_text, read_completion
from nat.capture.tap import Tap
from nat.capture.transport import httpx, retry_after
from nat.gateway.dialects import Body
from nat.gateway.dialects.content import count_at
from nat.http.errors import ApiError
from nat.http.sse import EventReader

logger = logging.getLogger(__name__)

_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict")
"""Fields in which servers take the maximum length of an answer."""
_COUNTS = ("n", "best_of")
OPENAI = "https://api.openai.com/v1"

_KEY_REFUSED = frozenset({401, 403})
_RETRIED = frozenset({408, 409, 429})
_SERVER_ERROR = 500
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 8.0


class Upstream:
    """An OpenAI-compatible server, and the tap that records its calls."""

    def __init__(
        self,
        tap: Tap,
        *,
        base_url: str | None,
        api_key: str,
        model_name: str,
        timeout: float,
        max_retries: int,
        max_tokens: int | None = None,
        verify_ssl: bool = True,
    ) -> None:
        """`timeout` is for a call with all of its retries; `base_url` is OpenAI's if left out."""
        self.model_name = model_name
        self._max_tokens = max_tokens
        self.timeout = timeout
        self._base_url = (base_url or OPENAI).rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._max_retries = max_retries
        self._forces_tools = True
        self._client = CapturingAsyncClient(tap, timeout=httpx.Timeout(timeout), verify=verify_ssl)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    def _adapted(self, body: Body) -> Body:
        """The request with this model's name, lengths cut to the configured one, and no tool call that nobody forces.

        Agents request as many tokens as a model of their vendor has, which can exceed this model's context.

        Raises:
            Untranslatable: a length is not a whole number, so it cannot be compared with the limit.

        """
        if body.get("tool_choice") == "required" and not self._forces_tools:
            body = {**body, "tool_choice": "auto"}
        counts = {key: count_at(body[key], key) for key in (*_LENGTHS, *_COUNTS) if body.get(key) is not None}
        if self._max_tokens is not None:
            counts |= {key: min(count, self._max_tokens) for key, count in counts.items() if key in _LENGTHS}
        return {**body, "model": self.model_name, **counts}

    async def complete(self, route: str, body: Body) -> Body:
        """The whole answer; ApiError if there is none."""
        response = await self._send(route, body, stream=False)
        try:
            return read_completion(response.content)
        except UnreadableAnswer as error:
            raise ApiError(f"the model server's response cannot be read: {error}", status=502) from error

    @asynccontextmanager
    async def stream(self, route: str, body: Body) -> AsyncIterator["Chunks"]:
        """The response's chunks as they come; ApiError if there are none."""
        response = await self._send(route, body, stream=True)
        try:
            yield Chunks(response)
        finally:
            await response.aclose()

    async def _send(self, route: str, body: Body, *, stream: bool) -> httpx.Response:
        retries = 0
        while True:
            chat, url = self._adapted(body), self._base_url + route
            request = self._client.build_request("POST", url, content=to_json(chat), headers=self._headers)
            try:
                response = await self._client.send(request, stream=stream)
            except httpx.TransportError as error:
                failure = ApiError(f"the model server does not answer: {type(error).__name__}", status=502)
                wait = None
            else:
                if response.is_success:
                    return response
                await response.aread()
                failure, wait = _upstream_error(response), retry_after(response)
                if chat.get("tool_choice") == "required" and b"tool_choice" in response.content:
                    if self._forces_tools:
                        text = "the server of %r refuses tool_choice: required, so the model may answer without a call"
                        logger.warning(text, self.model_name)
                    self._forces_tools = False
                    continue
                if response.status_code < _SERVER_ERROR and response.status_code not in _RETRIED:
                    raise failure
            if retries == self._max_retries:
                raise failure
            if wait is None or wait > _LONGEST_WAIT_SECONDS:
                wait = min(_FIRST_WAIT_SECONDS * 2**retries, _LONGEST_WAIT_SECONDS)
            await asyncio.sleep(wait)
            retries += 1


class Chunks:
    """A streamed response. Iterating gives all chunks but the last ones, and ends when the call is recorded.

    So a call is recorded even if the agent exits as soon as it has the last chunk.
    """

    def __init__(self, response: httpx.Response) -> None:
        self.last: list[Body] = []
        """The chunks that came with the end of the stream; complete after the iteration."""
        self._response = response
        self._finished = False

    async def __aiter__(self) -> AsyncGenerator[list[Body], None]:
        if "text/event-stream" not in self._response.headers.get("Content-Type", ""):
            raise ApiError("the model server did not stream its response", status=502)
        reader = EventReader()
        assert isinstance(self._response.stream, httpx.AsyncByteStream), "it was requested as a stream"
        pieces = aiter(self._response.stream)
        try:
            async for piece in pieces:
                chunks = reader.feed(piece)
                self._finished |= any(each.get("finish_reason") for c in chunks for each in c.get("choices") or ())
                if reader.done:
                    self.last += chunks
                elif chunks:
                    yield chunks
        except httpx.TransportError as error:
            raise ApiError(f"the model server broke off its response: {type(error).__name__}", status=502) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise ApiError(f"the model server's response cannot be read: {error}", status=502) from error
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()
        if not (reader.done or self._finished):
            raise ApiError("the model server ended its stream before the response was complete", status=502)


def _upstream_error(response: httpx.Response) -> ApiError:
    """The server's error; if it refuses the gateway's key, the agent does not see its message."""
    if response.status_code in _KEY_REFUSED:
        return ApiError(f"the model server refuses the key of this gateway (status {response.status_code})", status=502)
    if not response.is_error:
        return ApiError(f"the model server answers with status {response.status_code}", status=502)
    return ApiError(error_text(response.content), status=response.status_code)

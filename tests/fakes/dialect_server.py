"""One dialect for SDK clients without a network: each request becomes a chat, which a script answers."""

import json
from collections.abc import Iterable
from typing import Any

from anthropic import Anthropic
from openai import OpenAI

from fakes.chat_chunks import Cut, chunks
from nat.capture.transport import httpx
from nat.gateway.dialects import Dialect, DialectMemory, Untranslatable
from nat.http.errors import ApiError


class DialectServer:
    """The calls of one rollout; `chats` are the requests as the upstream would get them."""

    def __init__(self, dialect: Dialect, answers: Iterable[dict[str, Any]] = (), *, cut: Cut = list) -> None:
        self.chats: list[dict[str, Any]] = []
        self.memory = DialectMemory()
        self.events: list[str] = []
        self._dialect = dialect
        self._answers = list(answers)
        self._cut = cut

    def openai(self) -> OpenAI:
        return OpenAI(base_url="http://gateway/v1", api_key="key", max_retries=0, http_client=self._client())

    def anthropic(self) -> Anthropic:
        return Anthropic(base_url="http://gateway", api_key="key", max_retries=0, http_client=self._client())

    def _client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.MockTransport(self._respond))

    def _respond(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        try:
            self.chats.append(self._dialect.to_chat(asked, self.memory))
        except Untranslatable as error:
            status, body = self._dialect.error(ApiError(str(error)))
            return httpx.Response(status, json=body)
        answer = self._answers.pop(0)
        if not asked.get("stream"):
            return httpx.Response(200, json=self._dialect.from_chat(answer, asked, self.memory))
        stream = self._dialect.stream(asked, self.memory)
        content = b"".join([*map(stream.push, chunks(answer, self._cut)), stream.finish()])
        self.events += [line.removeprefix("event: ") for line in content.decode().splitlines() if line[:7] == "event: "]
        return httpx.Response(200, content=content, headers={"content-type": "text/event-stream"})

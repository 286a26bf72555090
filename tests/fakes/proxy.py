"""An HTTP proxy that the environment names, and that records whoever uses it."""

import asyncio
from types import TracebackType
from typing import Self

import pytest

from fakes.http_server import HttpServer, SeenRequest, write_json

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class RecordingProxy(HttpServer):
    """Refuses all requests; `asked` has their first lines, CONNECT included."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The variables of this process name it while it is open."""
        super().__init__()
        self.asked: list[str] = []
        self._monkeypatch = monkeypatch

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        for name in VARIABLES:
            self._monkeypatch.setenv(name, self.base_url)
        for name in ("NO_PROXY", "no_proxy"):
            self._monkeypatch.delenv(name, raising=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in VARIABLES:
            self._monkeypatch.delenv(name)
        await super().__aexit__(kind, error, trace)

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.asked.append(f"{request.method} {request.path}")
        write_json(writer, 502, {"error": "a proxy that reaches nothing"})
        return True

"""An HTTP proxy that the environment names, and that records whoever uses it."""

import asyncio
from types import TracebackType
from typing import Self

import pytest

from fakes.http_server import HttpServer, SeenRequest, write_json

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


class RecordingProxy(HttpServer):
    """Refuses all requests; `asked` has their first lines, CONNECT included."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        """With `monkeypatch`, the variables of this process name it while it is open."""
        super().__init__()
        self.asked: list[str] = []
        self._monkeypatch = monkeypatch

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name it."""
        return dict.fromkeys(VARIABLES, self.base_url)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._monkeypatch is not None:
            for name, url in self.environment.items():
                self._monkeypatch.setenv(name, url)
            for name in ("NO_PROXY", "no_proxy"):
                self._monkeypatch.delenv(name, raising=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._monkeypatch is not None:
            for name in VARIABLES:
                self._monkeypatch.delenv(name)
        await super().__aexit__(kind, error, trace)

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.asked.append(f"{request.method} {request.path}")
        write_json(writer, 502, {"error": "a proxy that reaches nothing"})
        return True

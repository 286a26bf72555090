"""A training server of somebody else: takes jobs over HTTP behind a key, and calls them done after a while."""

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Any, Self


class FakeTrainingBackend:
    """GET /health, POST /jobs, GET /jobs/<n>; a job is done when it was asked about twice."""

    def __init__(self, *, api_key: str, healthy: bool = True, failing_job: int | None = None) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.completed = 0
        self._asked: dict[int, int] = {}
        self._api_key = api_key
        self._healthy = healthy
        self._failing_job = failing_job
        self._server: asyncio.Server | None = None

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            content = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ")
            known = headers.get("authorization") == f"Bearer {self._api_key}"
            status, body = self._answer(method, path, content) if known else (401, {"error": "wrong key"})
            data = json.dumps(body).encode()
            writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n".encode())
            writer.write(data)
            await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str, content: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/health":
            return (200, {"status": "healthy"}) if self._healthy else (503, {"status": "down"})
        if method == "POST":
            self.jobs.append(json.loads(content))
            return 200, {"job": len(self.jobs) - 1}
        return 200, self._status(int(path.rpartition("/")[2]))

    def _status(self, job: int) -> dict[str, Any]:
        self._asked[job] = self._asked.get(job, 0) + 1
        if self._asked[job] == 1:
            return {"status": "running", "progress": 50}
        if job == self._failing_job:
            return {"status": "failed", "message": "out of memory on rank 3"}
        self.completed = max(self.completed, job + 1)
        return {"status": "completed", "progress": 100, "loss": 0.25}

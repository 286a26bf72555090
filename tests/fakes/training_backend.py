"""Another project's training server: takes jobs over HTTP with a key and completes them after a while."""

import asyncio
from typing import Any

from fakes.http_server import HttpServer, SeenRequest, write_json


class FakeTrainingBackend(HttpServer):
    """GET /health, POST /jobs, GET /jobs/<n>; a job is completed at its second status request."""

    def __init__(self, *, api_key: str) -> None:
        super().__init__()
        self.jobs: list[dict[str, Any]] = []
        self.completed = 0
        self._asked: dict[int, int] = {}
        self._api_key = api_key

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        known = request.headers.get("authorization") == f"Bearer {self._api_key}"
        status, body = self._answer(request) if known else (401, {"error": "wrong key"})
        write_json(writer, status, body)
        return True

    def _answer(self, request: SeenRequest) -> tuple[int, dict[str, Any]]:
        if request.path == "/health":
            return 200, {"status": "healthy"}
        if request.method == "POST":
            self.jobs.append(request.body)
            return 200, {"job": len(self.jobs) - 1}
        return 200, self._status(int(request.path.rpartition("/")[2]))

    def _status(self, job: int) -> dict[str, Any]:
        self._asked[job] = self._asked.get(job, 0) + 1
        if self._asked[job] == 1:
            return {"status": "running", "progress": 50}
        self.completed = max(self.completed, job + 1)
        return {"status": "completed", "progress": 100, "loss": 0.25}

"""An OpenPipe ART server on two real sockets: control routes here, inference on a scripted OpenAI server.

    async with FakeArtServer(script) as server:
        client = ArtClient(server.base_url, "default")

It follows the servers of 0.4 to 0.5.17 in routes, bodies, statuses and the training stream; it counts steps without
training. Options make it older, broken, or more verbose.
"""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from fakes.http_server import HttpServer, SeenRequest, begin_chunks, write_chunk, write_json
from fakes.openai_server import OpenAIServer, Refuse, Script

GRADIENT_STEP = {"loss": 0.5, "grad_norm": 2.0, "entropy": 1.5, "num_gradient_steps": 1}


class FakeArtServer(HttpServer):
    """An ART server that records all requests in `requests` and the training calls in `batches`."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        lines: Sequence[dict[str, Any]] = (GRADIENT_STEP,),
        breaks_after: int | None = None,
        failure: dict[str, str] | None = None,
        in_band: str | None = None,
        refusals: dict[str, tuple[int, Any]] | None = None,
        old_delete: bool = False,
        listens_everywhere: bool = False,
        serves: str | None = None,
        trains: bool = True,
        knows_token_ids: bool = True,
        serving: dict[str, Any] | None = None,
    ) -> None:
        """Configure the server's behaviour.

        The stream is cut off `breaks_after` so many lines; /jobs then reports `failure`, as our own backend
        does. `in_band` is a last line of the stream. `refusals` maps paths to a status and a body. `serves` is the
        name for inference instead of the registered one. Without `trains` there is no training route, as in 0.5.18.
        `serving` is what our own server tells of itself.
        """
        super().__init__()
        self.requests: list[SeenRequest] = []
        self.batches: list[dict[str, Any]] = []
        self.steps = 0
        self.registered: dict[str, Any] | None = None
        self.hold: asyncio.Event | None = None
        """While this is set and not reached, a training stream waits after its lines."""
        self.streaming = asyncio.Event()
        self.hung_up = asyncio.Event()
        """Set when the client closes a training stream before its end."""
        self.inference = OpenAIServer(self._reply, knows_token_ids=knows_token_ids)
        self.refusals = refusals or {}
        self.script = script
        self._lines = lines
        self._breaks_after = breaks_after
        self._failure = failure
        self._in_band = in_band
        self._old_delete = old_delete
        self._listens_everywhere = listens_everywhere
        self._serves = serves
        self._trains = trains
        self._serving = serving

    @property
    def paths(self) -> list[str]:
        """The control routes that were called, in order."""
        return [request.path for request in self.requests]

    def bodies(self, path: str) -> list[Any]:
        """The bodies that were posted to a control route."""
        return [request.body for request in self.requests if request.path == path]

    async def __aenter__(self) -> Self:
        await self.inference.__aenter__()
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self.inference.__aexit__(kind, error, trace)

    def _reply(self, request: SeenRequest):
        if request.body["model"] not in self.inference.models:
            return Refuse(404, f"The model `{request.body['model']}` does not exist.")
        assert callable(self.script), "the fake's inference wants a function of the request"
        return self.script(request)

    async def answer(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self.requests.append(request)
        if (request.method, request.path) == ("POST", "/_train_model") and request.path not in self.refusals:
            return await self._train(request, reader, writer)
        told = self._serving if request.path == "/_prepare_backend_for_training" else None
        write_json(writer, *self._answer(request), {} if told is None else {"x-nat-serving": json.dumps(told)})
        return True

    def _answer(self, request: SeenRequest) -> tuple[int, Any]:
        if request.path in self.refusals and (request.method, request.path) != ("GET", "/_train_model"):
            return self.refusals[request.path]
        if (request.method, request.path) == ("GET", "/_train_model"):
            return (405, {"detail": "Method Not Allowed"}) if self._trains else (404, {"detail": "Not Found"})
        if request.path == "/register":
            self.registered = request.body
            self._list_names()
        delete = "/_delete_checkpoints" if self._old_delete else "/_delete_checkpoint_files"
        answers: dict[tuple[str, str], Any] = {
            ("GET", "/healthcheck"): {"status": "ok"},
            ("POST", "/register"): None,
            ("POST", "/_prepare_backend_for_training"): [self._inference_url, "default"],
            ("POST", "/_get_step"): self.steps,
            ("POST", delete): None,
        }
        if self._failure is not None:
            answers["GET", "/jobs/7"] = {
                "id": "7",
                "status": "failed",
                "failure": {"type": "internal", **self._failure},
            }
        key = (request.method, request.path)
        return (200, answers[key]) if key in answers else (404, {"detail": "Not Found"})

    @property
    def _inference_url(self) -> str:
        url = self.inference.base_url
        return url.replace("127.0.0.1", "0.0.0.0") if self._listens_everywhere else url

    def _list_names(self) -> None:
        assert self.registered is not None
        self.inference.models = [self.registered["base_model"], self._serves or self.registered["name"]]

    async def _train(self, request: SeenRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Stream a training call; False if the connection is closed."""
        self.batches.append(request.body)
        begin_chunks(writer, {} if self._failure is None else {"x-job-id": "7"})
        for number, line in enumerate(self._lines):
            if number == self._breaks_after:
                break
            write_chunk(writer, json.dumps(line) + "\n")
        await writer.drain()
        self.streaming.set()
        if self.hold is not None:
            gone = asyncio.create_task(reader.read(1))
            held = asyncio.create_task(self.hold.wait())
            await asyncio.wait([gone, held], return_when=asyncio.FIRST_COMPLETED)
            held.cancel()
            if gone.done():
                self.hung_up.set()
                return False
            gone.cancel()
        if self._breaks_after is not None:
            return False
        if self._in_band is not None:
            write_chunk(writer, self._in_band + "\n")
        self.steps += 1
        self._list_names()
        write_chunk(writer, "")
        return True

"""The backend of a `local` model in the test's own process, which has imported torch already; a child takes seconds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from fakes.keys import KEY
from fakes.running_server import running
from nat.backend.output_folder import claimed
from nat.backend.protocol import Endpoint
from nat.backend.serve import open_training
from nat.backend.server.app import create_app
from nat.plugins.local.process import BackendProcess
from nat.wire.serving import ServeOptions


class BackendHere(BackendProcess):
    """A backend without a process of its own."""

    def __init__(self, base_url: str) -> None:
        self.base_url, self.api_key = base_url, KEY

    @property
    def alive(self) -> bool:
        return True

    def check(self) -> None:
        """It lives as long as the test."""


@asynccontextmanager
async def backend_here(options: ServeOptions, **_: object) -> AsyncIterator[BackendHere]:
    """Take the place of `running_backend`: the same options, models, routes and files."""
    folder = nullcontext() if options.output_dir is None else claimed(options.output_dir)
    with folder, open_training(options, Endpoint({}, KEY)) as opened:
        app = create_app(opened.engine, api_key=KEY, answers=opened.answers, extra_routers=opened.routers)
        async with running(app) as client:
            yield BackendHere(str(client.base_url).rstrip("/"))

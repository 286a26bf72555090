"""An application behind a real socket in the test's event loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn


@asynccontextmanager
async def running(app) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the server while it runs."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_config=None, lifespan="off", http="httptools", ws="none", timeout_graceful_shutdown=1
            )
        )
        task = asyncio.create_task(server._serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            await task

"""CPU time per streamed call, 64 at a time: our gateway, and a bare reverse proxy.

Each runs in a process of its own between the same clients and the same stub server, which streams 32 tokens, one event
each. A call is one request of a rollout, and the steps of all calls are kept. The rows take turns, and each shows its
best.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from bench.process_tree import cpu_seconds

from nat.cli import event_loop

STREAMS, CALLS, ROUNDS = 64, 640, 2
MESSAGES = [{"role": "system", "content": "You play a game. " * 20}, {"role": "user", "content": "What now?"}]


Start = Callable[[str], Iterator[tuple[int, int, str]]]
"""Starts a proxy for a server's address; gives process id, port and key."""


def main() -> None:
    """Print the table."""
    between: dict[str, Start] = {
        "a bare reverse proxy (uvicorn, httpx)": lambda url: _started("bare", url),
        "gateway, chat": lambda url: _started("plain", url),
        "gateway, chat, with logprobs and token ids": lambda url: _started("exact", url),
    }
    print("| between client and server | CPU per call, ms | calls per second |\n|---|---:|---:|")
    with _stub() as url:
        rows: dict[str, list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            for title, start in between.items():
                rows.setdefault(title, []).append(_measured(contextmanager(start), url))
    for title, measured in rows.items():
        cpu, rate = min(measured)
        print(f"| {title} | {cpu:.2f} | {rate:.0f} |")


def _measured(start: Any, url: str) -> tuple[float, float]:
    """CPU milliseconds of a call, and calls per second."""
    with start(url) as (pid, port, key):
        event_loop.run(_load(port, key, STREAMS))
        before, began = cpu_seconds(pid), time.monotonic()
        event_loop.run(_load(port, key, CALLS))
        seconds = time.monotonic() - began
        return 1000 * (cpu_seconds(pid) - before) / CALLS, CALLS / seconds


async def _load(port: int, key: str, calls: int) -> None:
    """Make the calls, with one in progress for each stream."""
    left = iter(range(calls))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            messages = [*MESSAGES, {"role": "user", "content": str(number)}]
            body = json.dumps({"model": "stub", "messages": messages, "stream": True})
            writer.write(
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
            )
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b" 200 " in answer.partition(b"\r\n")[0], answer[:500]
            assert b"[DONE]" in answer, answer[-500:]
        writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(STREAMS, calls)):
            group.create_task(client())


@contextmanager
def _stub() -> Iterator[str]:
    with _process([sys.executable, "-m", "bench.stub"]) as stub:
        assert stub.stdout is not None
        yield f"http://127.0.0.1:{int(stub.stdout.readline())}/v1"


def _started(kind: str, url: str) -> Iterator[tuple[int, int, str]]:
    with _process([sys.executable, "-m", "bench.gateway", kind, url]) as process:
        assert process.stdout is not None
        port, key = process.stdout.readline().split()
        yield process.pid, int(port), key.decode()


@contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()


async def serve(kind: str, url: str) -> None:
    """Serve a proxy: print port and key, and exit when the parent's pipe closes."""
    opened = _bare(url) if kind == "bare" else _gateway(url, exact=kind == "exact")
    async with opened as (port, key):
        print(port, key, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def _gateway(url: str, *, exact: bool) -> AsyncIterator[tuple[str, str]]:
    from nat.builder.context import ContextState
    from nat.capture.context import CapturePolicy, capturing
    from nat.gateway.access import Keyring, RolloutAccess
    from nat.gateway.app import GatewayApp
    from nat.http.server import listening
    from nat.plugins.llms.client import open_upstream
    from nat.plugins.llms.openai import OpenAIModelConfig

    config = OpenAIModelConfig(model_name="stub", base_url=url)
    keyring, steps = Keyring(), list[Any]()
    with (
        ContextState().active() as context,
        capturing(CapturePolicy(logprobs=exact, token_ids=exact, seed=1 if exact else None)),
    ):
        context.intermediate_step_manager.subscribe(steps.append)
        async with (
            open_upstream(config, llm_name="stub") as upstream,
            listening(GatewayApp(keyring)) as address,
            keyring.opened(RolloutAccess({"stub": upstream})) as key,
        ):
            yield address.rpartition(":")[2], key
    assert len(steps) == 2 * (CALLS + STREAMS), len(steps)


@asynccontextmanager
async def _bare(url: str) -> AsyncIterator[tuple[str, str]]:
    """A reverse proxy that forwards requests and responses unchanged."""
    from nat.capture.transport import httpx
    from nat.http.asgi import Receive, Scope, Send, Sender, read_body
    from nat.http.server import listening

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1000)) as client:

        async def app(_: Scope, receive: Receive, send: Send) -> None:
            body, sender = await read_body(receive), Sender(send)
            async with client.stream("POST", f"{url}/chat/completions", content=body) as response:
                await sender.begin("text/event-stream")
                async for piece in response.aiter_raw():
                    await sender.write(piece)
            await sender.end()

        async with listening(app) as address:
            yield address.rpartition(":")[2], "none"


if __name__ == "__main__":
    if len(sys.argv) == 3:
        event_loop.run(serve(sys.argv[1], sys.argv[2]))
    else:
        main()

"""Several engines behind the backend: what stays at its engine, what a failure costs, and what a call costs more.

    python -m bench.engines [PROGRAM]

The engines are processes without a model, which answer at once; or eight calls at a time, each after a tenth of a
second, to see what a second engine adds. With PROGRAM, that of `vllm-router`, the same calls go through it, too: with
`consistent_hash` and X-Session-ID, over `/v1/completions`. Compare figures with the load.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial

import httpx

from nat.backend.vllm.client import generate
from nat.backend.vllm.fleet import Fleet, Replica
from nat.backend.vllm.server import ServerAtUrl
from nat.backend.vllm.wire import Generate, VllmSampling
from nat.errors import EngineFailed

Call = Callable[[str], Awaitable[int]]
"""Makes a call of a session; gives the engine that has answered."""
Calls = Callable[[float], Call]
"""Calls whose answers take so many seconds."""
Way = Callable[["Engines"], AbstractAsyncContextManager[tuple[Calls, Call]]]
"""Opens a way to several engines, and beside it a call straight to the first one, by the same client."""
SESSIONS, TURNS, CALLS = 48, 5, 300
SECONDS = 0.1
"""Of an answer, where a second engine is to be seen."""
_SERVER = """
import asyncio, json, sys
sick, places = False, asyncio.Semaphore(8)
async def serve(reader, writer):
    global sick
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = [int(l.split(b":")[1]) for l in head.lower().split(b"\\r\\n") if l.startswith(b"content-length")]
            body = await reader.readexactly(length[0] if length else 0)
            path, status, seen = head.split(b" ")[1], "200 OK", {"port": int(sys.argv[1])}
            if path == b"/sick":
                sick = not sick
            elif head.startswith(b"POST") and sick:
                status = "500 Sick"
            elif head.startswith(b"POST"):
                async with places:
                    await asyncio.sleep(float(json.loads(body).get("priority") or 0))
                seen |= {"id": "r", "object": "text_completion", "created": 1, "model": "m"}
                seen["choices"] = [{"index": 0, "text": "", "token_ids": [int(sys.argv[1])], "finish_reason": "stop"}]
            data = json.dumps(seen).encode()
            lines = f"HTTP/1.1 {status}", "content-type: application/json", f"content-length: {len(data)}"
            writer.write("\\r\\n".join(lines).encode() + b"\\r\\n\\r\\n" + data)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    async with await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
"""


def free_port() -> int:
    """A port of the loopback interface that nobody has now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Engines:
    """Processes that answer at once, or after some seconds."""

    def __init__(self, count: int) -> None:
        self.ports = [free_port() for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.processes = [self._started(port) for port in self.ports]

    def _started(self, port: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", _SERVER, str(port)])

    async def ready(self) -> None:
        """Wait until all answer."""
        for url in self.urls:
            await answers(f"{url}/health")

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


async def answers(url: str) -> None:
    """Wait until a server does."""
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=10)) as http:  # with growing pauses
        (await http.get(url)).raise_for_status()


@asynccontextmanager
async def own(engines: Engines) -> AsyncIterator[tuple[Calls, Call]]:
    """Calls through the backend's own fleet."""
    fleet = Fleet([ServerAtUrl(url, None) for url in engines.urls], lambda _: None)

    async def probed(replica: Replica) -> None:
        await generate(replica.http, _request(0), replica.explain)
        replica.failure = None

    fleet.tend(probed)

    async def sampled(replica: Replica, seconds: float) -> int:
        return (await generate(replica.http, _request(seconds), replica.explain)).choices[0].token_ids[0]

    def calls(seconds: float) -> Call:
        async def call(session: str) -> int:
            found: list[int] = []

            async def one(replica: Replica) -> None:
                found.append(await sampled(replica, seconds))

            await fleet.sent(one, session)
            return found[0]

        return call

    yield calls, lambda _: sampled(fleet.replicas[0], 0.0)
    await fleet.rest()
    await fleet.close()


def _request(seconds: float) -> Generate:
    class Delayed(Generate):
        priority: float

    sampling = VllmSampling(max_tokens=1, temperature=1.0, logprobs=0)
    return Delayed(model="m", token_ids=list(range(200)), sampling_params=sampling, priority=seconds)


def over_http(http: httpx.AsyncClient, url: str, seconds: float) -> Call:
    """Calls of one address."""

    async def call(session: str) -> int:
        body = {"model": "m", "prompt": list(range(200)), "max_tokens": 1, "priority": seconds}
        response = await http.post(f"{url}/v1/completions", json=body, headers={"X-Session-ID": session})
        response.raise_for_status()
        return int(response.json()["choices"][0]["token_ids"][0])

    return call


@asynccontextmanager
async def router(program: str, engines: Engines) -> AsyncIterator[tuple[Calls, Call]]:
    """Calls through `vllm-router`."""
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *engines.urls]
    often = ["--health-check-interval-secs", "1", "--prometheus-port", str(free_port())]
    command = [program, *where, "--policy", "consistent_hash", *often]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    try:
        await answers(f"http://127.0.0.1:{port}/health")
        async with httpx.AsyncClient(timeout=60) as http:
            routed = partial(over_http, http, f"http://127.0.0.1:{port}")
            yield routed, over_http(http, engines.urls[0], 0.0)
    finally:
        process.kill()
        await process.wait()


async def figures(way: Way) -> dict[str, object]:
    """All figures of one way to two engines."""
    found: dict[str, object] = {}
    async with AsyncExitStack() as stack:
        engines = Engines(2)
        stack.callback(engines.kill)
        await engines.ready()
        calls, straight = await stack.enter_async_context(way(engines))
        call = calls(0.0)
        homes = [[await call(f"s{at}") for at in range(SESSIONS)] for _ in range(TURNS)]
        found["kept"] = sum(len({turn[at] for turn in homes}) == 1 for at in range(SESSIONS))
        found["of the first engine"] = homes[0].count(engines.ports[0])
        more = [await _ms(call) - await _ms(straight) for _ in range(CALLS)]
        found["ms a call more than straight"] = round(statistics.median(more), 2)
        async with httpx.AsyncClient() as http:
            await http.get(f"{engines.urls[0]}/sick")
            ends = [await _end(call, f"t{at}") for at in range(100)]
            found["failed while one is sick, of 100"] = ends.count(None)
            await http.get(f"{engines.urls[0]}/sick")
            began = time.perf_counter()
            while engines.ports[0] not in [await _end(call, f"u{time.perf_counter()}") for _ in range(8)]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            found["back after s"] = round(time.perf_counter() - began, 1)
        slow = [asyncio.create_task(_end(calls(2.0), f"v{at}")) for at in range(12)]
        await asyncio.sleep(1)
        engines.processes[0].kill()
        found["lost by a kill, of 12"] = [await each for each in slow].count(None)
    return found


async def rate(way: Way, count: int) -> float:
    """Calls in a second through so many engines, from many sessions at once."""
    async with AsyncExitStack() as stack:
        engines = Engines(count)
        stack.callback(engines.kill)
        await engines.ready()
        calls, _ = await stack.enter_async_context(way(engines))
        call = calls(SECONDS)
        await asyncio.gather(*(call(f"w{at}") for at in range(SESSIONS)))
        began = time.perf_counter()
        await asyncio.gather(*(call(f"s{at}") for at in range(CALLS)))
        return round(CALLS / (time.perf_counter() - began), 1)


async def _ms(call: Call) -> float:
    began = time.perf_counter()
    await call("s0")
    return 1e3 * (time.perf_counter() - began)


async def _end(call: Call, session: str) -> int | None:
    try:
        return await call(session)
    except (EngineFailed, httpx.HTTPError):
        return None


async def main() -> None:
    """Print a row for each way."""
    ways: dict[str, Way] = {"own": own}
    if sys.argv[1:]:
        ways |= {"vllm-router": lambda engines: router(sys.argv[1], engines)}
    for name, way in ways.items():
        rates = {f"calls a second, {count} engines": await rate(way, count) for count in (1, 2)}
        print(json.dumps({"way": name, **await figures(way), **rates, "load": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    asyncio.run(main())

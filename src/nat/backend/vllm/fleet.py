"""The vLLM engines of a backend: where a call goes, and what follows when an engine fails. For one event loop.

The calls of a session go to one engine, whose prefix cache has its earlier turns. With several engines, a call that
fails is sent to another one. An engine leaves when it does not answer, when it has other weights, or when another one
has answered what it failed; it returns once it has the current weights and answers a probe. With one engine, each
failure is the caller's.
"""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import httpx

from nat.backend.vllm.client import HEALTH, Control, Explain
from nat.backend.vllm.server import OwnServer, VllmServer
from nat.errors import EngineFailed, EngineOutOfMemory, EngineStopped, WeightsReplaced, describe_error

logger = logging.getLogger(__name__)

T = TypeVar("T")
_LOOK_SECONDS, _LONGEST_PAUSE = 1.0, 60.0
"""Between two looks at an engine; twice as long after each return that fails, up to the second."""
_HEALTH_SECONDS = 30.0
"""In which an engine under load must say that it is well."""
_WAIT_SECONDS = 0.1
_MOST_SESSIONS = 100_000
"""Whose engines are remembered; the least recently used is forgotten first."""
_GONE = (EngineStopped, EngineOutOfMemory, WeightsReplaced)
"""Failures that are the engine's own, and not a request's."""


@dataclass(eq=False)
class Replica:
    """One engine; all of a fleet have the same weights."""

    number: int
    server: VllmServer
    http: httpx.AsyncClient
    failure: EngineFailed | None = None
    """Why it gets no calls; None while it gets them."""
    calls: set[asyncio.Timeout] = field(default_factory=set)
    """Those under way, each of which can be ended."""
    num_sessions: int = 0
    """That it was given."""
    _busy: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.explain: Explain = self.server.explain
        self.control = Control(self.server.address, self.server.explain)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Around a call, which fails if the engine is found to hang."""
        try:
            async with asyncio.timeout(None) as end:
                self.calls.add(end)
                try:
                    yield
                finally:
                    self.calls.discard(end)
        except TimeoutError:
            raise _gone(f"no answer from {HEALTH} in {_HEALTH_SECONDS:.0f} s") from None

    def give(self, use: Callable[[Control], None]) -> None:
        """Make control calls, in a thread that goes on even if nobody waits for it any more."""
        if not self._busy.acquire(blocking=False):
            raise EngineStopped("an earlier hand-over to it has not ended", hint="look at its log")
        try:
            use(self.control)
        finally:
            self._busy.release()

    async def is_well(self) -> bool:
        """False if it says that it is not, or does not answer; if it hangs, its calls end."""
        try:
            return (await self.http.get(HEALTH, timeout=_HEALTH_SECONDS)).is_success
        except httpx.TimeoutException:
            for call in self.calls:
                call.reschedule(0)
        except httpx.HTTPError:
            pass  # the calls end with their connections
        return False


class Fleet:
    """One engine or several."""

    def __init__(self, servers: Sequence[VllmServer], on_none_left: Callable[[EngineFailed], None]) -> None:
        self.replicas = [
            Replica(number, server, server.address.async_client()) for number, server in enumerate(servers)
        ]
        self.sole = self.replicas[0] if len(servers) == 1 else None
        """The engine, if there is one only."""
        for replica in self.replicas if self.sole is None else ():
            replica.explain = _gone  # it is sent elsewhere before it is known why a process ended
        self._closing = False
        self._on_none_left = on_none_left
        self._homes: OrderedDict[int, Replica] = OrderedDict()
        self._tended: list[asyncio.Task[None]] = []

    @property
    def live(self) -> list[Replica]:
        """The engines that get calls."""
        return [replica for replica in self.replicas if replica.failure is None]

    def start(self) -> None:
        """Start all servers, side by side; from another thread. EngineFailed if one does not start."""
        if self.sole is not None:
            self.sole.server.start()
            return
        with ThreadPoolExecutor(len(self.replicas)) as pool:
            starts = {pool.submit(replica.server.start) for replica in self.replicas}
            try:
                while starts:  # a signal that another thread gets does not end a wait without a limit
                    done, starts = wait(starts, _WAIT_SECONDS, FIRST_COMPLETED)
                    for start in done:
                        start.result()
            except BaseException:
                self.stop()  # so that the others do not wait
                raise

    def restart(self) -> None:
        """Start the only server again; from another thread. EngineFailed if that cannot help."""
        if self.sole is None:
            raise EngineStopped("no engine can go back to the weights before", hint="look at the logs of the engines")
        self.sole.server.restart()

    def stop(self) -> None:
        """Stop all servers; from another thread."""
        self._closing = True
        with ThreadPoolExecutor(len(self.replicas)) as pool:
            list(pool.map(lambda replica: replica.server.stop(), self.replicas))

    async def sent(self, call: Callable[[Replica], Awaitable[None]], session: str = "") -> None:
        """Make a call at the session's engine, or else at others; EngineFailed if all fail it, or none is left."""
        failed: dict[Replica, EngineFailed] = {}
        while (replica := self._chosen(session, failed)) is not None:
            try:
                async with replica.calling():
                    await call(replica)
            except EngineFailed as error:
                failed[replica] = error
                if isinstance(error, _GONE) and self.sole is None:
                    self.leave(replica, error)
            else:
                for other, failure in failed.items():
                    self.leave(other, failure)
                return
        raise next(iter(failed.values()), None) or self._none_left()

    async def every(self, call: Callable[[Replica], Awaitable[T]]) -> list[T]:
        """Make a call at each live engine; one that fails it leaves, EngineFailed if none is left."""
        live = self.live
        ends = await asyncio.gather(*(_result(call, replica) for replica in live))
        failures = {replica: end for replica, end in zip(live, ends, strict=True) if isinstance(end, EngineFailed)}
        if len(failures) == len(live):
            raise next(iter(failures.values()), None) or self._none_left()
        for replica, failure in failures.items():
            self.leave(replica, failure)
        return [end for end in ends if not isinstance(end, EngineFailed)]

    def leave(self, replica: Replica, failure: EngineFailed) -> None:
        """Give an engine no more calls."""
        known, replica.failure = replica.failure, failure  # a later one says more
        if known is None:
            logger.warning("engine %d leaves: %s", replica.number, failure)
            if not self.live:
                self._on_none_left(self._none_left())

    def tend(self, bring_back: Callable[[Replica], Awaitable[None]]) -> None:
        """Look after several engines from now on; `bring_back` gives one the weights, and ends its `failure`."""
        loop = asyncio.get_running_loop()
        for replica in self.replicas if self.sole is None else ():
            replica.server.watch(partial(loop.call_soon_threadsafe, self.leave, replica))  # type: ignore[arg-type]
            self._tended.append(loop.create_task(self._tend(replica, bring_back)))

    async def death(self) -> EngineFailed | None:
        """Why the only engine cannot answer any more; None if it can, so that a failure was one request's own."""
        if self.sole is None:
            return None
        try:
            (await self.sole.http.get(HEALTH)).raise_for_status()
        except httpx.HTTPError as error:
            return await asyncio.to_thread(self.sole.explain, error)
        return None

    async def rest(self) -> None:
        """Look after them no more."""
        for task in self._tended:
            task.cancel()
        await asyncio.gather(*self._tended, return_exceptions=True)

    async def close(self) -> None:
        """Close all connections."""
        for replica in self.replicas:
            await replica.http.aclose()
            replica.control.close()

    async def _tend(self, replica: Replica, bring_back: Callable[[Replica], Awaitable[None]]) -> None:
        pause, broken = _LOOK_SECONDS, False
        while True:
            await asyncio.sleep(pause)
            well = await replica.is_well()
            if replica.failure is None:
                if not well:
                    self.leave(replica, _gone(f"no success from {HEALTH}"))
                continue
            try:
                if isinstance(replica.server, OwnServer) and (broken or not well):
                    await asyncio.to_thread(self._restart, replica.server)
                elif not well:
                    continue
                await bring_back(replica)
            except Exception as error:  # noqa: BLE001 - it stays away, whatever went wrong
                logger.info("engine %d is not back yet: %s", replica.number, describe_error(error))
                pause, broken = min(2 * pause, _LONGEST_PAUSE), True
            else:
                logger.warning("engine %d is back", replica.number)
                pause, broken = _LOOK_SECONDS, False

    def _restart(self, server: VllmServer) -> None:
        server.stop()
        if not self._closing:
            server.start()

    def _chosen(self, session: str, failed: Container[Replica]) -> Replica | None:
        live = [replica for replica in self.live if replica not in failed]
        key = hash(session)  # a name may be long
        home = self._homes.get(key) if session else None
        if home not in live and live:
            home = min(live, key=lambda replica: (len(replica.calls), replica.num_sessions))
            home.num_sessions += 1
        if home not in live:
            return None
        if session:
            self._homes[key] = home
            self._homes.move_to_end(key)
            if len(self._homes) > _MOST_SESSIONS:
                self._homes.popitem(last=False)
        return home

    def _none_left(self) -> EngineFailed:
        reasons = "; ".join(f"engine {each.number}: {each.failure and each.failure.message}" for each in self.replicas)
        return EngineStopped(f"no vLLM engine is left: {reasons}", hint="look at the logs of the engines")


async def _result(call: Callable[[Replica], Awaitable[T]], replica: Replica) -> T | EngineFailed:
    try:
        async with replica.calling():
            return await call(replica)
    except EngineFailed as failure:
        return failure


def _gone(seen: object) -> EngineFailed:
    return EngineStopped(f"vLLM does not answer: {seen!r}", hint="look at that engine's log")

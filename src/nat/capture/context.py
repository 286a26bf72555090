"""What applies to each call that running code makes, in whichever task or thread: one context variable has it all.

A rollout's calls request further fields from the server (`capturing`), may be sent to another model (`redirecting`),
count against a time limit (`deadline`), and wait for a server that is away (`waited_for`). Calls outside of these
blocks are recorded, too, but nothing is added to them.
"""

import asyncio
import hashlib
import heapq
import itertools
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from nat.capture.interning import Interner
from nat.errors import BackendUnreachable
from nat.wire.hosts import is_everywhere, is_loopback
from nat.wire.rollout import ModelRedirect
from nat.wire.sampling import target_names

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ReplacedSampling:
    """Calls are sampled from the model's own distribution at this temperature."""

    temperature: float
    model: str | None = None
    """Only calls of this LLM (its key in the YAML, or a name of the model), or of several; None for all calls."""

    @property
    def names(self) -> set[str]:
        """Of the LLMs; empty for all."""
        return target_names(self.model)


@dataclass(frozen=True, slots=True)
class CapturePolicy:
    """The fields that the calls of one rollout request."""

    logprobs: bool = False
    """Request the log probability of each sampled token."""
    token_ids: bool = False
    """Request the token ids of prompt and completion; a server that refuses is not asked again."""
    seed: int | None = None
    """Each call that sets no seed gets one derived from this."""
    replaced: ReplacedSampling | None = None
    """How calls are sampled, whatever the agent requests; None to leave that to the agent."""


class OpenCall(Protocol):
    """A call that has not ended."""

    close: Callable[[], Awaitable[None]] | None
    """Closes the stream that the agent has left, or is about to read on."""

    def left(self) -> None:
        """The rollout has ended."""


class RolloutCapture:
    """The calls of one rollout: their policy, their numbers and the messages seen so far."""

    def __init__(self, policy: CapturePolicy, *, session: str = "") -> None:
        """`session` identifies the rollout to a server that reports token ids; empty for none."""
        self.policy = policy
        self.session = session
        self.interner = Interner()
        self.open: dict[OpenCall, int] = {}
        """Calls that have not ended, with their numbers."""
        self._numbers = itertools.count()
        self._returned: list[int] = []

    def begin(self, call: OpenCall) -> int:
        """The lowest free number: 0 for the first call, 1 for the second, and so on."""
        number = self.open[call] = heapq.heappop(self._returned) if self._returned else next(self._numbers)
        return number

    def end(self, call: OpenCall, *, failed: bool) -> bool:
        """End a call, False if it had ended. A failed one frees its number, so that its retry samples with its seed."""
        number = self.open.pop(call, None)
        if number is not None and failed:
            heapq.heappush(self._returned, number)
        return number is not None

    async def close(self) -> None:
        """The rollout has ended: close the streams that the agent has left."""
        for call in tuple(self.open):
            if call.close is not None:
                await call.close()


class Address(NamedTuple):
    """A host and a port; all names of the loopback interface are one host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def address_of(url: str) -> Address | None:
    """The address that a URL leads to; None if it names none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # brackets that do not close, or a port that is no number
        return None
    if not host or port is None:
        return None
    here = is_loopback(host) or is_everywhere(host)  # as a target, 0.0.0.0 means this machine
    return Address("localhost" if here else host.lower(), port)


class Redirects:
    """Model names to replace, by server and requested name; a change applies from the next request on.

    A server may serve the trained weights and the weights they started from under two names. In training, the agent's
    requests must reach the trained ones, whatever name the YAML has.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, str], ModelRedirect] = {}

    def send(self, server: Address, requested: str, to: str, *, frozen_llms: Collection[str] = ()) -> None:
        names = {"requested_model": requested, "served_model": to, "frozen_llms": sorted(frozen_llms)}
        self.add(ModelRedirect(host=server.host, port=server.port, **names))

    def add(self, redirect: ModelRedirect) -> None:
        self._found[redirect.host, redirect.port, redirect.requested_model] = redirect

    def entries(self) -> list[ModelRedirect]:
        """Those that change a name."""
        return [each for each in self._found.values() if each.requested_model != each.served_model]

    def name(self, server: Address, requested: str, llm: str | None) -> str:
        """The name to send; `llm` is the requesting one's key, None for a client that the harness did not build."""
        found = self._found.get((*server, requested))
        return requested if found is None or llm in found.frozen_llms else found.served_model


class Deadline:
    """A time limit, which calls move while they wait for their server; use `deadline`."""

    def __init__(self, timer: asyncio.Timeout, outer: "Deadline | None") -> None:
        self._timer = timer
        self._outer = outer
        self._loop = asyncio.get_running_loop()
        self._still_until = 0.0

    @property
    def expired(self) -> bool:
        """The timer has fired."""
        return self._timer.expired()

    @property
    def is_over(self) -> bool:
        """The time has passed, even if the timer could not fire because code blocked the event loop."""
        return self.expired or self._loop.time() > (self._timer.when() or float("inf"))

    def lift(self) -> None:
        """Remove the limit."""
        self._timer.reschedule(None)

    def stand_still(self, since: float, until: float) -> None:
        """Do not count this time, nor do the limits around this one; safe from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._move, since, until)
        if self._outer is not None:
            self._outer.stand_still(since, until)

    def _move(self, since: float, until: float) -> None:
        """Several calls may wait at once, so only time after what is known counts."""
        moved = until - max(since, self._still_until)
        if moved <= 0 or (when := self._timer.when()) is None:
            return
        self._still_until = until
        with suppress(RuntimeError):  # the block is over
            self._timer.reschedule(when + moved)


@dataclass
class Waits:
    """How long calls wait for a server that is away, and who hears of one that waited in vain."""

    longest: float
    give_up: Callable[[BackendUnreachable], None]
    first_pause: float = 1.0
    closed: bool = False
    """The block has ended, so nobody waits any longer."""
    answered: dict[str, float] = field(default_factory=dict)
    """When each server answered last."""
    told: dict[str, float] = field(default_factory=dict)
    """Servers of which the log says that they are away, and since when."""


@dataclass(frozen=True, slots=True)
class CaptureContext:
    """What applies to a call; None for what does not."""

    rollout: RolloutCapture | None = None
    redirects: Redirects | None = None
    limit: Deadline | None = None
    """The innermost one."""
    waits: Waits | None = None


_NOTHING = CaptureContext()
_context: ContextVar[CaptureContext] = ContextVar("nat_capture", default=_NOTHING)

capture_context = _context.get


@contextmanager
def _within(name: str, value: Any) -> Iterator[None]:
    """Replace one part of the context in the block."""
    outer = getattr(_context.get(), name)
    _context.set(replace(_context.get(), **{name: value}))
    try:
        yield
    finally:  # no token: a block may end in another context than it began in
        _context.set(replace(_context.get(), **{name: outer}))


@contextmanager
def capturing(policy: CapturePolicy) -> Iterator[RolloutCapture]:
    """Record the calls inside the block as one rollout; enter it once per rollout, with or without a seed."""
    capture = RolloutCapture(policy, session=secrets.token_hex(8))
    try:
        with _within("rollout", capture):
            yield capture
    finally:
        for call in tuple(capture.open):
            call.left()


@contextmanager
def redirecting() -> Iterator[Redirects]:
    """Redirect all requests of this task, and of the tasks that it starts, until the block ends."""
    redirects = Redirects()
    with _within("redirects", redirects):
        yield redirects


@asynccontextmanager
async def deadline(seconds: float | None) -> AsyncIterator[Deadline]:
    """Cancel the block with TimeoutError after so many seconds, those in which its calls wait not counted."""
    async with asyncio.timeout(seconds) as timer:
        limit = Deadline(timer, _context.get().limit)
        with _within("limit", limit):
            yield limit


@contextmanager
def waited_for(
    longest: float, give_up: Callable[[BackendUnreachable], None], *, first_pause: float = 1.0
) -> Iterator[None]:
    """Until the block ends, calls in it wait for their servers, for at most so many seconds; with 0 they do not.

    A call that waited so long, while its server answered no other, is told to `give_up`, from any thread.
    """
    waits = Waits(longest, give_up, first_pause)
    try:
        with _within("waits", waits if longest > 0 else None):
            yield
    finally:
        waits.closed = True


def served_name(server: Address | None, requested: str, llm: str | None = None) -> str:
    """The model name to send when an agent requests `requested` by the LLM of that key."""
    redirects = _context.get().redirects
    return requested if redirects is None or server is None else redirects.name(server, requested, llm)


def stable_seed(*parts: int | str) -> int:
    """31 bits from the parts, equal on every machine and in every process (unlike `hash`)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()) & 0x7FFF_FFFF

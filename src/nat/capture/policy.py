"""The fields that a rollout's calls request from the server in addition to the agent's.

The policy is kept in a context variable: every call made inside `capturing` belongs to that rollout, whichever task or
thread makes it. Outside of it calls are recorded too, but nothing is added to them.
"""

import hashlib
import heapq
import itertools
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from nat.capture.interning import Interner
from nat.wire.sampling import target_names


@dataclass(frozen=True, slots=True)
class CapturePolicy:
    """The fields that the calls of one rollout request."""

    logprobs: bool = False
    """Request the log probability of each sampled token."""
    token_ids: bool = False
    """Request the token ids of prompt and completion; a server that refuses is not asked again."""
    seed: int | None = None
    """Each call that sets no seed gets one derived from this."""
    replaced: "ReplacedSampling | None" = None
    """How calls are sampled, whatever the agent requests; None to leave that to the agent."""


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
        try:
            self.open[call] = heapq.heappop(self._returned)
        except IndexError:
            self.open[call] = next(self._numbers)
        return self.open[call]

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


_current: ContextVar[RolloutCapture | None] = ContextVar("nat_rollout_capture", default=None)


@contextmanager
def capturing(policy: CapturePolicy) -> Iterator[RolloutCapture]:
    """Record the calls inside the block as one rollout; enter it once per rollout, with or without a seed."""
    capture = RolloutCapture(policy, session=secrets.token_hex(8))
    token = _current.set(capture)
    try:
        yield capture
    finally:
        _current.reset(token)
        for call in tuple(capture.open):
            call.left()


current_capture = _current.get
"""The rollout that the running code belongs to, if any."""


def stable_seed(*parts: int | str) -> int:
    """31 bits from the parts, equal on every machine and in every process (unlike `hash`)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()) & 0x7FFF_FFFF

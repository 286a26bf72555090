"""What to ask the server for beyond what the agent asks, per rollout.

The policy travels in a context variable: every call made inside `capturing` belongs to that rollout, whichever task or
thread makes it. Outside of it calls are recorded as well, but nothing is added to them.
"""

import hashlib
import heapq
import itertools
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from nat.capture.interning import Interner


@dataclass(frozen=True, slots=True)
class CapturePolicy:
    """What the calls of one rollout are asked for."""

    logprobs: bool = False
    """Ask for the log probability of each sampled token."""
    token_ids: bool = False
    """Ask for the ids of prompt and completion; a server that does not know how is not asked again."""
    seed: int | None = None
    """From this each call gets a seed of its own, unless it brings one."""
    replaced: "ReplacedSampling | None" = None
    """How calls are sampled, whatever the agent asks for; None to leave that to the agent."""


@dataclass(frozen=True, slots=True)
class ReplacedSampling:
    """Calls are drawn from the model's own distribution at this temperature, and from nothing else."""

    temperature: float
    model: str | None = None
    """Only calls of this LLM (its key in the YAML, or a name of the model); None for all calls."""


class RolloutCapture:
    """The calls of one rollout: their policy, their numbers and what they have already said."""

    def __init__(self, policy: CapturePolicy, *, session: str = "") -> None:
        """The `session` is told to a server that is asked for tokens, to tell rollouts apart; none if it is empty."""
        self.policy = policy
        self.session = session
        self.interner = Interner()
        self._numbers = itertools.count()
        self._returned: list[int] = []

    def take_number(self) -> int:
        """The lowest number that no call holds: 0 for the first call, 1 for the second, and so on."""
        try:
            return heapq.heappop(self._returned)
        except IndexError:
            return next(self._numbers)

    def return_number(self, number: int) -> None:
        """A failed attempt gives its number back, so that its retry samples with the same seed."""
        heapq.heappush(self._returned, number)


_current: ContextVar[RolloutCapture | None] = ContextVar("nat_rollout_capture", default=None)


@contextmanager
def capturing(policy: CapturePolicy) -> Iterator[RolloutCapture]:
    """Make the calls inside one rollout; enter it once per rollout, with seed or without."""
    capture = RolloutCapture(policy, session=secrets.token_hex(8))
    token = _current.set(capture)
    try:
        yield capture
    finally:
        _current.reset(token)


def current_capture() -> RolloutCapture | None:
    """The rollout that the running code belongs to."""
    return _current.get()


def stable_seed(*parts: int | str) -> int:
    """31 bits from the parts, equal on every machine and in every process (unlike `hash`)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()) & 0x7FFF_FFFF

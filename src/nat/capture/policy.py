"""The fields that a rollout's calls request from the server in addition to the agent's.

The policy is kept in a context variable: every call made inside `capturing` belongs to that rollout, whichever task or
thread makes it. Outside of it calls are recorded too, but nothing is added to them.
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


class RolloutCapture:
    """The calls of one rollout: their policy, their numbers and the messages seen so far."""

    def __init__(self, policy: CapturePolicy, *, session: str = "") -> None:
        """`session` identifies the rollout to a server that reports token ids; empty for none."""
        self.policy = policy
        self.session = session
        self.interner = Interner()
        self._numbers = itertools.count()
        self._returned: list[int] = []

    def take_number(self) -> int:
        """The lowest free number: 0 for the first call, 1 for the second, and so on."""
        try:
            return heapq.heappop(self._returned)
        except IndexError:
            return next(self._numbers)

    def return_number(self, number: int) -> None:
        """Free the number of a failed attempt, so that its retry samples with the same seed."""
        heapq.heappush(self._returned, number)


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


def current_capture() -> RolloutCapture | None:
    """The rollout that the running code belongs to."""
    return _current.get()


def stable_seed(*parts: int | str) -> int:
    """31 bits from the parts, equal on every machine and in every process (unlike `hash`)."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()) & 0x7FFF_FFFF

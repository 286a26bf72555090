"""Recognise retries among a rollout's requests, so that each sampled answer is recorded once. Pure.

A failed call recorded nothing, so its retry is a new call. A client may retry an answered call because it never got the
answer; then it gets the same answer. Every other request is a new call, even with an equal body: an agent may send
the same request twice to get two samples.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

RETRY_HEADER = b"x-stainless-retry-count"
"""The SDKs of OpenAI and Anthropic count their attempts here, from 0."""

_KEPT = 64
"""Answers of one rollout; clients retry soon or never."""


@dataclass(slots=True)
class Sent:
    """An answer as it was sent."""

    content_type: str
    content: bytes
    delivered: bool = False
    """True if all of it was sent while the client seemed connected."""


class Answers:
    """The answers to the requests of one rollout."""

    def __init__(self) -> None:
        self._sent: list[tuple[bytes, Sent]] = []
        self._failed: Counter[bytes] = Counter()

    def again(self, request: bytes, *, retry: bool) -> Sent | None:
        """The answer to repeat for this request; None for a new call. `retry` is the client's own mark."""
        earlier = [sent for known, sent in self._sent if known == request]
        missed = next((sent for sent in earlier if not sent.delivered), None)
        if missed is not None:
            missed.delivered = True
            return missed
        if self._failed[request]:
            self._failed[request] -= 1
            return None
        return earlier[-1] if retry and earlier else None

    def settle(self, request: bytes, sent: Sent | None = None) -> None:
        """Keep the answer of a recorded call; without one the call failed, and nothing was recorded."""
        if sent is None:
            self._failed[request] += 1
            return
        self._sent.append((request, sent))
        del self._sent[:-_KEPT]


def fingerprint(path: str, body: bytes) -> bytes:
    """Equal for two requests if one may be a retry of the other."""
    return hashlib.blake2b(path.encode() + b"\0" + body, digest_size=16).digest()

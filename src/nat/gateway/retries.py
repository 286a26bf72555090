"""Which requests of a rollout are one asked again, so that what was sampled once is recorded once. Pure.

A call that failed left nothing behind, so asking it again is the call. A call that was answered may be asked again
because its client never saw the answer; then it gets that answer. Everything else is a new call, be the request equal
or not: an agent may ask the same thing twice and want two samples.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

RETRY_HEADER = b"x-stainless-retry-count"
"""The SDKs of OpenAI and Anthropic count their attempts here, from 0."""

_KEPT = 64
"""Answers of one rollout; a client asks again at once or never."""


@dataclass(slots=True)
class Sent:
    """An answer as it went out."""

    content_type: str
    content: bytes
    delivered: bool = False
    """All of it was sent to a client that was still there, as far as this side can know."""


class Answers:
    """What the requests of one rollout were answered."""

    def __init__(self) -> None:
        self._sent: list[tuple[bytes, Sent]] = []
        self._failed: Counter[bytes] = Counter()

    def again(self, request: bytes, *, retry: bool) -> Sent | None:
        """The answer to repeat for this request; None if it has to be asked. `retry` is what the client says."""
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
        """The request was recorded as a call and answered so; or it failed, and nothing was recorded."""
        if sent is None:
            self._failed[request] += 1
            return
        self._sent.append((request, sent))
        del self._sent[:-_KEPT]


def fingerprint(path: str, body: bytes) -> bytes:
    """What two requests share if one may be the other asked again."""
    return hashlib.blake2b(path.encode() + b"\0" + body, digest_size=16).digest()

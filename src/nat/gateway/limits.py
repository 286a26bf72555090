"""What an agent may cost: how large its requests are, and how much of them a rollout may have."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request and of one rollout; how long an answer may take is the LLM's own `timeout`."""

    body_bytes: int = 32 * 2**20
    rollout_bytes: int = 512 * 2**20
    """Of all requests of a rollout and their answers, which are kept as its steps until it ends."""
    request_bytes: int = 1000
    """What is known of a request that says nothing."""

"""What an agent may cost: how large its requests are, and how long it may take to send one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request; how long its answer may take is the LLM's own `timeout`."""

    body_bytes: int = 32 * 2**20
    body_seconds: float = 60.0

"""The interface between the backend's process and the protocol that it serves.

The backend's own protocol (`nat.backend.serve.open_training`) uses it, too. A package adds another one with a subclass
of `ServeOptions`, announced as an entry point in the group `nat.backend.protocols`, and with the function that this
class names as its `opener`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from nat.backend.sampling import SamplingEngine
from nat.backend.server.service import AnswerMemory


@dataclass(frozen=True)
class Opened:
    """Loaded models, and the routes on them."""

    engine: SamplingEngine
    """Samples for the OpenAI routes."""
    routers: Sequence[APIRouter]
    """The protocol's own routes, such as training; they answer on every port."""
    answers: AnswerMemory | None = None
    """Remembers chat answers, if training needs more than clients send back."""
    greeting: str | None = None
    """Printed for the user: how to connect."""


@dataclass(frozen=True)
class Endpoint:
    """The server's ports and key."""

    ports: Mapping[str, int]
    """The ports that were taken, by the options that choose them."""
    api_key: str


Open = Callable[[Any, Endpoint], AbstractContextManager[Opened]]
"""Opens a protocol from its options, and closes its models at the end; `output_dir` is already locked."""

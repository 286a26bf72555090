"""What the backend serves on its ports, whichever protocol its clients speak.

The backend's own protocol is one of them (`nat.backend.serve.open_training`). A package adds another without a change
here: a subclass of `ServeOptions` with the options, announced as an entry point in the group `nat.backend.protocols`,
and a function that its `opener` names.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from fastapi import APIRouter

from nat.backend.inference.worker import Worker
from nat.backend.server.service import AnswerMemory
from nat.wire.serving import ServeOptions


@dataclass(frozen=True)
class Opened:
    """Loaded models that can be sampled and trained, and the routes for it."""

    worker: Worker
    """Samples; the OpenAI routes and `/health` ask it."""
    routers: Sequence[APIRouter]
    """The protocol's own routes, such as those of training; on every port."""
    answers: AnswerMemory | None = None
    """Where chat answers are remembered, if training needs what the client does not send back."""
    greeting: str | None = None
    """What the person who started the server does next; it may show addresses and a well-known key."""


@dataclass(frozen=True)
class Endpoint:
    """Where the server listens and which key it asks for."""

    ports: Mapping[str, int]
    """The ports that were taken, by the options that choose them."""
    api_key: str


Open = Callable[[Any, Endpoint], AbstractContextManager[Opened]]
"""Loads models by a protocol's options and closes them; storage is what it makes of `output_dir`, which is claimed."""


def opener_of(options: ServeOptions) -> Open:
    """Import what opens the protocol of these options."""
    opener: Open = resolve_name(options.opener)
    return opener

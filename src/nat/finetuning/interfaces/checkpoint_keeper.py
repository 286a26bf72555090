"""An optional interface for adapters whose backend has checkpoints."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict


class KeptCheckpoint(BaseModel):
    """A checkpoint that is not deleted while the run goes on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Name of the weights in the backend, such as `my_model@20`."""
    path: str | None = None
    """The checkpoint's folder; None if only the backend can read it."""


@runtime_checkable
class CheckpointKeeper(Protocol):
    """An adapter that keeps checkpoints inherits from this class."""

    async def keep_best(self) -> KeptCheckpoint:
        """Keep the current weights until this is called again."""
        ...

    async def export_best(self, name: str) -> Path | None:
        """Export the kept checkpoint as a plain model of that name; None if there is none, or the backend keeps it."""
        ...

"""What an adapter can do beyond the guide's interface where its backend has checkpoints."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict


class KeptCheckpoint(BaseModel):
    """A checkpoint that stays however long the run goes on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Of the weights, as the backend calls them, such as `my_model@20`."""
    path: str | None = None
    """Its folder; None where the backend keeps it to itself."""


@runtime_checkable
class CheckpointKeeper(Protocol):
    """An adapter that keeps checkpoints inherits from this class."""

    async def keep_best(self) -> KeptCheckpoint:
        """Keep the current weights until this is called again."""
        ...

    async def export_best(self, name: str) -> Path | None:
        """Write what is kept as a plain model under that name; None if nothing is, or if the backend has it."""
        ...

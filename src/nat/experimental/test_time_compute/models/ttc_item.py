"""One candidate on its way through a pipeline."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class TTCItem(BaseModel):
    """A candidate; each stage fills in its fields, and further ones are allowed."""

    model_config = ConfigDict(extra="allow")

    input: Any | None = None
    output: Any | None = None
    plan: Any | None = None
    feedback: str | None = None
    score: float | None = None
    metadata: Any | None = None
    name: str | None = None

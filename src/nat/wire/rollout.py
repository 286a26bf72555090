"""One rollout of a workflow behind a URL: what its request asks for beyond the input, and the lines of its answer.

The answer to `/generate/full` is lines: `intermediate_data:` for each step, `data:` for the result. The wishes travel
in a header, which servers that do not know it ignore; those that do say so with the same header.
"""

import json
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from nat.wire.sampling import MAX_TEMPERATURE, MIN_TEMPERATURE

ROLLOUT_HEADER = "X-Nat-Rollout"
"""In a request: `RolloutWishes` as JSON. In an answer: the version of this protocol."""
PROTOCOL_VERSION = "1"
KEY_VARIABLE = "NAT_SERVE_API_KEY"
"""Environment variable of the key, on the side that serves and on the side that asks."""
DATA, STEP = b"data: ", b"intermediate_data: "
"""How the lines begin."""


class SentRedirect(BaseModel):
    """While a model is trained, requests that ask this server for `asked` are to ask it for `to`."""

    model_config = ConfigDict(extra="forbid")

    host: str
    port: int
    asked: str
    to: str


class RolloutWishes(BaseModel):
    """What makes a rollout behind a URL the same as one in the process that asks."""

    model_config = ConfigDict(extra="forbid")

    item_id: str
    generation: int = 0
    seed: int | None = None
    """Of the workflow's own randomness."""
    call_seed: int | None = None
    """From which each LLM call gets a seed of its own."""
    logprobs: bool = False
    token_ids: bool = False
    temperature: float | None = Field(default=None, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)
    """Sample calls of `target_model` (of all models if it is None) from their own distribution at this temperature."""
    target_model: str | None = None
    redirects: list[SentRedirect] = []

    def header(self) -> str:
        """In ASCII, as headers must be."""
        return json.dumps(self.model_dump())

    @classmethod
    def from_header(cls, text: str) -> Self:
        return cls.model_validate_json(text)


class PlayFailure(BaseModel):
    """Why there is no result; in `{"error": …}`, as the last `data:` line or as the body of an error status."""

    model_config = ConfigDict(extra="ignore")

    type: str
    """Name of the exception's class."""
    message: str
    param: str | None = None
    code: str | None = None

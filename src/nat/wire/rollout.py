"""The protocol of a rollout behind a URL: the options in its request, and the lines of its response.

The response of `/generate/full` has a line `intermediate_data:` for each step and a line `data:` for the result. The
options travel in a header, which other servers ignore; `nat serve` answers with the same header.
"""

import json
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from nat.wire.sampling import MAX_TEMPERATURE, MIN_TEMPERATURE

ROLLOUT_HEADER = "X-Nat-Rollout"
"""In a request: `RolloutOptions` as JSON. In an answer: the version of this protocol."""
PROTOCOL_VERSION = "2"
KEY_VARIABLE = "NAT_SERVE_API_KEY"
"""Environment variable of the key, for the server and the client."""
DATA, STEP = b"data: ", b"intermediate_data: "
"""Prefixes of the lines."""


class ModelRedirect(BaseModel):
    """During training, requests to this server for `requested_model` are sent for `served_model`."""

    model_config = ConfigDict(extra="forbid")

    host: str
    port: int
    requested_model: str
    served_model: str
    frozen_llms: list[str] = []
    """Keys under `llms` whose requests stay as they are: an opponent or a judge with the same base model."""


class RolloutOptions(BaseModel):
    """Options that make a remote rollout equal to one in the client's process."""

    model_config = ConfigDict(extra="forbid")

    item_id: str
    generation: int = 0
    seed: int | None = None
    """Seed of the workflow's own randomness."""
    call_seed: int | None = None
    """Seed from which each LLM call's seed is derived."""
    logprobs: bool = False
    token_ids: bool = False
    temperature: float | None = Field(default=None, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)
    """Sample calls of `target_model` (of all models if it is None) from their own distribution at this temperature."""
    target_model: str | None = None
    redirects: list[ModelRedirect] = []

    def header(self) -> str:
        """The options as ASCII JSON, since headers allow only ASCII."""
        return json.dumps(self.model_dump())

    @classmethod
    def from_header(cls, text: str) -> Self:
        return cls.model_validate_json(text)

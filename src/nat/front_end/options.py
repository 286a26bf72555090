"""Options of `nat serve`, which its command reads without FastAPI."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from nat.wire.hosts import HOST_LIST, check_public_host
from nat.wire.rollout import KEY_VARIABLE


class FrontEndOptions(BaseModel):
    """Options of `nat serve`; each field is the option of the same name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    host: str = "localhost"
    """Address to listen on; a public address needs a key."""
    allowed_hosts: str | None = Field(default=None, pattern=HOST_LIST)
    """Further host names of this server, comma-separated, such as that of a proxy."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which is printed."""
    api_key: SecretStr | None = Field(default=None, min_length=1)
    """Key that requests need, as a bearer token; prefer NAT_SERVE_API_KEY."""

    @model_validator(mode="after")
    def _a_public_host_has_a_key(self) -> Self:
        check_public_host(self.host, self.api_key, KEY_VARIABLE)
        return self

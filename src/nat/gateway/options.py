"""Options of `nat gateway serve`."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from nat.wire.hosts import HOST_LIST, check_public_host

KEY_VARIABLE = "NAT_GATEWAY_API_KEY"


class GatewayOptions(BaseModel):
    """Options of `nat gateway serve`; each field is the option of the same name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on; a public address needs a key of yours."""
    allowed_hosts: str | None = Field(default=None, pattern=HOST_LIST)
    """Further host names of this server, comma-separated, such as that of a proxy."""
    port: int = Field(default=8010, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which is printed."""
    llm: str | None = None
    """The LLM of the YAML that answers; by default the first."""
    api_key: SecretStr | None = Field(default=None, min_length=1)
    """Key that opens and closes rollouts; generated and printed if left out. Better given as NAT_GATEWAY_API_KEY."""

    @model_validator(mode="after")
    def _a_public_host_has_a_key(self) -> Self:
        check_public_host(self.host, self.api_key, KEY_VARIABLE)
        return self

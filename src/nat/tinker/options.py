"""The options of `nat backend serve` for Tinker's clients; `protocol` chooses it.

Free of torch: the command line reads them. The entry point is in the group `nat.backend.protocols`.
"""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, SecretStr, model_validator

from nat.files import UserPath
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import SERVER_URL, AdapterServeOptions, ServeOptions

KEY_PREFIX = "tml-"
"""The official clients accept no other keys."""


class TinkerServeOptions(AdapterServeOptions):
    """Serve Tinker's clients: one base model, on which each client trains adapters of its own, or one all weights."""

    switch: ClassVar[str] = "protocol"
    opener: ClassVar[str] = "nat.tinker.server.routes:open_tinker"
    key_prefix: ClassVar[str] = KEY_PREFIX

    protocol: Literal["tinker"]
    """Serve clients of this protocol in place of our own. With `tinker`, the defaults are output_dir .tinker and
    adapters of alpha 32; keys begin with `tml-`."""
    output_dir: UserPath = Path(".tinker")
    lora_rank: int = Field(default=32, ge=1)
    all_weights: bool = False
    """With protocol tinker: also train all weights of one model at a time, for a client that asks for rank 0. They are
    a second copy of the model, with gradient and optimizer; what is sampled from them is a third."""

    @model_validator(mode="after")
    def _fit_tinker(self) -> Self:
        if self.api_key is not None and not self.api_key.get_secret_value().startswith(KEY_PREFIX):
            raise ValueError(
                f"api_key: Tinker's clients accept only keys that begin with {KEY_PREFIX!r}; choose such one"
            )
        if self.all_weights and self.load_in_4bit:
            raise ValueError("all_weights: those of four bits cannot be trained; leave out one of the two")
        if missing := missing_packages(["google.protobuf"]):
            raise ValueError(f"protocol tinker needs {', '.join(missing)}; {install_hint('tinker')}")
        return self


class TinkerRemoteOptions(ServeOptions):
    """Serve a model that a Tinker server samples and trains; the parent of the process chooses this class."""

    opener: ClassVar[str] = "nat.tinker.remote.serve:open_remote"

    tinker_url: str = Field(pattern=SERVER_URL)
    """Address of the server."""
    tinker_api_key: SecretStr | None = None
    """Key of the server."""
    base_model: str = Field(min_length=1)
    """Name of the base model on the server."""
    lora_rank: int = Field(default=16, ge=0)
    """Rank of the adapter; 0 trains all weights."""

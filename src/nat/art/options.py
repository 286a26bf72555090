"""The options of `nat backend serve` for OpenPipe ART's clients; `inference_port` chooses this protocol.

Free of torch: the command line reads them. The entry point is in the group `nat.backend.protocols`.
"""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from nat.files import UserPath
from nat.wire.serving import AdapterServeOptions

API_KEY = "default"
"""Default key of ART's servers and clients."""


class ArtServeOptions(AdapterServeOptions):
    """Serve ART's clients: one base model, on which each client trains adapters of its own."""

    switch: ClassVar[str] = "inference_port"
    opener: ClassVar[str] = "nat.art.server.routes:open_art"
    well_known_key: ClassVar[str | None] = API_KEY

    inference_port: int = Field(ge=0, le=65535)
    """Serve OpenPipe ART's clients: they train through `port` and sample through this port; 0
    chooses a free one. The defaults are then: key `default`, output_dir .art, and adapters of rank 8 and alpha 16
    unless the client chooses others."""
    output_dir: UserPath = Path(".art")
    lora_rank: int = Field(default=8, ge=1)
    lora_alpha: int = Field(default=16, ge=1)

    @model_validator(mode="after")
    def _fit_art(self) -> Self:
        if self.inference_port == self.port != 0:
            raise ValueError(f"port and inference_port are both {self.port}; choose two")
        return self

    @property
    def ports(self) -> dict[str, int]:
        return {**super().ports, "inference_port": self.inference_port}

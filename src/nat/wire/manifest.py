"""What a folder of the backend's says of itself: its kind, and the size and checksum of each of its files."""

from typing import Literal

from pydantic import Field

from nat.wire.training import WireModel

MANIFEST = "manifest.json"
"""Written after all other files of the folder."""
STATE = "state.json"
"""What a checkpoint knows besides tensors."""


class FileSum(WireModel):
    """One file as it was written."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(WireModel):
    """The folder's files by their path inside it, the manifest left out."""

    kind: Literal["checkpoint", "export"]
    files: dict[str, FileSum]

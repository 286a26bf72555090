"""What a folder of the backend's says of itself: its kind, and the size and checksum of each of its files."""

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

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


def read_manifest(folder: Path) -> Manifest | None:
    """Give the folder's manifest, None if it has none.

    Raises:
        ValueError: there is one that cannot be read.

    """
    try:
        return Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValidationError) as error:
        raise ValueError(f"{MANIFEST} cannot be read") from error


def is_export(path: Path) -> bool:
    """True for a folder that says of itself that it is an export; a link to one is not."""
    try:
        manifest = None if path.is_symlink() else read_manifest(path)
    except ValueError:
        return False
    return manifest is not None and manifest.kind == "export"

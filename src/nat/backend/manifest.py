"""Write the manifest of a folder, and find what is no longer as it was written.

Sizes are compared at every look, checksums before a checkpoint is trained on or handed out: one core computes SHA-256
of about 1.2 GB/s.
"""

import hashlib
from pathlib import Path
from typing import Literal

from nat.wire.manifest import MANIFEST, FileSum, Manifest


def write_manifest(folder: Path, kind: Literal["checkpoint", "export"]) -> None:
    """Sum up all files that are in the folder by now."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): _sum(path) for path in paths}
    (folder / MANIFEST).write_text(Manifest(kind=kind, files=files).model_dump_json(indent=1))


def wrong_sizes(folder: Path, manifest: Manifest) -> list[str]:
    """Files that are missing or of another size."""
    findings = []
    for name, written in manifest.files.items():
        path = folder / name
        if not path.is_file():
            findings.append(f"{name} is missing")
        elif (size := path.stat().st_size) != written.bytes:
            findings.append(f"{name} has {size} of {written.bytes} bytes")
    return findings


def wrong_contents(folder: Path, manifest: Manifest) -> list[str]:
    """Files whose bytes are not those that were written; reads every byte."""
    return [
        f"{name} has another checksum" for name, written in manifest.files.items() if _sum(folder / name) != written
    ]


def _sum(path: Path) -> FileSum:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileSum(bytes=path.stat().st_size, sha256=digest)

"""The folder of a checkpoint or an export: write its manifest, and check its files against it.

Sizes are compared every time, checksums before a checkpoint is used: one core computes SHA-256 of about 1.2 GB/s, and
two files are read at a time.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nat.errors import BackendError, CheckpointDamaged, findings_of
from nat.wire.model_folder import MANIFEST, OPTIMIZER, REMOTE_WEIGHTS, STATE, FileSum, Manifest, read_manifest
from nat.wire.training import JobState

OF_TRAINING = frozenset({MANIFEST, OPTIMIZER, REMOTE_WEIGHTS, STATE})
"""Files of a checkpoint that a plain model or adapter has not."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""Peft's file name."""
_AT_ONCE = 2
_MOST_STEPS = 2**53
"""Larger numbers do not fit into a float, nor the longest into a folder's name."""


class TrainedJob(BaseModel):
    """A job that the weights of a checkpoint contain."""

    model_config = ConfigDict(extra="forbid")

    state: JobState
    digest: str = ""
    """SHA-256 of the request."""


class CheckpointState(BaseModel):
    """A checkpoint's state besides tensors."""

    model_config = ConfigDict(extra="forbid")

    step: int = Field(ge=0, le=_MOST_STEPS)
    """Optimizer steps up to this checkpoint."""
    first_step: int = Field(default=0, ge=0, le=_MOST_STEPS)
    """The step from which the learning rate's schedule counts; above 0 from the second phase of training on."""
    lora: bool
    load_in_4bit: bool = False
    """True if the adapter was trained on a base of four bits."""
    job: TrainedJob | None = None
    """The last job that the weights contain."""


def write_manifest(folder: Path, kind: Literal["checkpoint", "export"]) -> None:
    """Write the manifest of all files in the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        sums = threads.map(_checksum, paths)
        files = {path.relative_to(folder).as_posix(): found for path, found in zip(paths, sums, strict=True)}
    (folder / MANIFEST).write_text(Manifest(kind=kind, files=files).model_dump_json(indent=1))


def read_state(folder: Path, *, optimizer: bool = True) -> CheckpointState:
    """Read the state of a checkpoint after a quick check of its files' names, kinds and sizes.

    Without `optimizer`, its file is not looked at: a model needs none.
    """
    manifest = _manifest(folder, optimizer=optimizer)
    if manifest is None:
        raise CheckpointDamaged(folder, [f"{MANIFEST} is missing"])
    # A link could bring a private file into an export, a FIFO never ends.
    findings = [
        f"{path.relative_to(folder)} is {'a link' if path.is_symlink() else 'neither a file nor a folder'}"
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or not (path.is_file() or path.is_dir())
    ]
    if findings := findings + _wrong_sizes(folder, manifest):
        raise CheckpointDamaged(folder, findings)
    try:
        text = (folder / STATE).read_bytes()
        return CheckpointState.model_validate_json(text)
    except OSError as error:
        raise CheckpointDamaged(folder, [f"{STATE} is missing"]) from error
    except ValidationError as error:
        if b'"jobs"' in text:
            raise BackendError(f"{folder} was made by nat 0.6", hint="start anew, in another output folder") from error
        raise CheckpointDamaged(folder, [f"{STATE} cannot be read: {findings_of(error)[0]}"]) from error


def verify(folder: Path, *, optimizer: bool = True) -> CheckpointState:
    """Read the state of a checkpoint after comparing every byte with its checksum."""
    state = read_state(folder, optimizer=optimizer)
    manifest = _manifest(folder, optimizer=optimizer)
    if manifest is not None and (findings := _wrong_contents(folder, manifest)):
        raise CheckpointDamaged(folder, findings)
    return state


def check_weights(folder: Path) -> None:
    """Compare the weights in one of our folders with its manifest; other folders have none."""
    manifest = _manifest(folder, optimizer=False)
    if manifest is None:
        return
    weights = {name: written for name, written in manifest.files.items() if name.endswith(".safetensors")}
    written = manifest.model_copy(update={"files": weights})
    if findings := _wrong_sizes(folder, written) or _wrong_contents(folder, written):
        raise CheckpointDamaged(folder, findings)


def _manifest(folder: Path, *, optimizer: bool) -> Manifest | None:
    try:
        manifest = read_manifest(folder)
    except ValueError as error:
        raise CheckpointDamaged(folder, [str(error)]) from error
    if manifest is not None and not optimizer:
        manifest.files.pop(OPTIMIZER, None)
    return manifest


def _wrong_sizes(folder: Path, manifest: Manifest) -> list[str]:
    findings = []
    for name, written in manifest.files.items():
        path = folder / name
        if not path.is_file():
            findings.append(f"{name} is missing")
        elif (size := path.stat().st_size) != written.bytes:
            findings.append(f"{name} has {size} of {written.bytes} bytes")
    return findings


def _wrong_contents(folder: Path, manifest: Manifest) -> list[str]:
    return [
        f"{name} has another checksum"
        for name, written in manifest.files.items()
        if _checksum(folder / name) != written
    ]


def _checksum(path: Path) -> FileSum:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileSum(bytes=path.stat().st_size, sha256=digest)

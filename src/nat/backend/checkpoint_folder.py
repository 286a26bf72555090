"""What a checkpoint's folder holds, and whether it still holds what was written."""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open

from nat.backend.manifest import wrong_contents, wrong_sizes
from nat.errors import CheckpointDamaged, findings_of
from nat.wire.manifest import STATE, Manifest, read_manifest
from nat.wire.model_folder import ADAPTER_CONFIG, MODEL_CONFIG
from nat.wire.training import JobState

logger = logging.getLogger(__name__)

OPTIMIZER = "optimizer.safetensors"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""What peft calls them."""
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


class CheckpointState(BaseModel):
    """What a checkpoint knows besides tensors."""

    model_config = ConfigDict(extra="forbid")

    step: int
    """Optimizer steps that led here."""
    lora: bool
    jobs: list[JobState]
    """The job that led here; in checkpoints of older releases all jobs up to this one."""


def read_state(folder: Path) -> CheckpointState:
    """Give the state of a checkpoint whose files are all there, by their names and sizes; cheap.

    Raises:
        CheckpointDamaged: with everything that is missing or cut short.

    """
    manifest = _manifest(folder)
    findings = [] if manifest is None else wrong_sizes(folder, manifest)
    if findings:
        raise CheckpointDamaged(folder, findings)
    try:
        state = CheckpointState.model_validate_json((folder / STATE).read_bytes())
    except OSError as error:
        raise CheckpointDamaged(folder, [f"{STATE} is missing"]) from error
    except ValidationError as error:
        raise CheckpointDamaged(folder, [f"{STATE} cannot be read: {findings_of(error)[0]}"]) from error
    if manifest is None and (absent := _absent(folder, state)):
        raise CheckpointDamaged(folder, [f"{name} is missing" for name in absent])
    return state


def verify(folder: Path) -> CheckpointState:
    """Give the state of a checkpoint after reading every byte of it.

    Raises:
        CheckpointDamaged: with everything that is not as it was written.

    """
    state = read_state(folder)
    manifest = _manifest(folder)
    if manifest is None:
        logger.warning("%s has no manifest, as an older release wrote it: changed bytes in it are not found", folder)
        findings = [finding for path in sorted(folder.glob("*.safetensors")) if (finding := _torn(path)) is not None]
    else:
        findings = wrong_contents(folder, manifest)
    if findings:
        raise CheckpointDamaged(folder, findings)
    return state


def check_weights(folder: Path) -> None:
    """Compare the weights of a folder that we wrote with what was written; folders of others have no manifest.

    Raises:
        CheckpointDamaged: they are missing, cut short, or other bytes.

    """
    manifest = _manifest(folder)
    if manifest is None:
        return
    weights = {n: f for n, f in manifest.files.items() if n.endswith(".safetensors") and n != OPTIMIZER}
    written = manifest.model_copy(update={"files": weights})
    if findings := wrong_sizes(folder, written) or wrong_contents(folder, written):
        raise CheckpointDamaged(folder, findings)


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except ValueError as error:
        raise CheckpointDamaged(folder, [str(error)]) from error


def _absent(folder: Path, state: CheckpointState) -> list[str]:
    """Files that a checkpoint without a manifest must have, and has not."""
    needed = [OPTIMIZER, *((ADAPTER_WEIGHTS, ADAPTER_CONFIG) if state.lora else (MODEL_CONFIG,))]
    absent = [name for name in needed if not (folder / name).is_file()]
    weights = state.lora or any((folder / name).is_file() for name in _WEIGHTS)
    return absent if weights else [*absent, _WEIGHTS[0]]


def _torn(path: Path) -> str | None:
    """Say what safetensors does not like about a file's header and length."""
    try:
        with safe_open(path, framework="pt"):
            return None
    except (OSError, SafetensorError) as error:
        return f"{path.name} cannot be read: {error}"

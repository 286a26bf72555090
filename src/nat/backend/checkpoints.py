"""Checkpoints of a training run: `step_000100/` folders, each whole, and `latest` that points to the newest.

A folder holds the model as Hugging Face knows it (or the LoRA adapter as peft knows it), `optimizer.safetensors`
and `state.json`. From it training goes on as if it had never stopped.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from peft import set_peft_model_state_dict
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file, save_file

from nat.backend.atomic import point, remove_unfinished, whole_folder
from nat.backend.export import write_adapter, write_model
from nat.backend.model import LoadedModel
from nat.backend.training.learner import Learner
from nat.errors import BackendError
from nat.wire.training import JobState

LATEST = "latest"
_STATE = "state.json"
_OPTIMIZER = "optimizer.safetensors"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
_NAME = re.compile(r"step_(\d{6,})")


class CheckpointState(BaseModel):
    """What a checkpoint knows besides tensors."""

    model_config = ConfigDict(extra="forbid")

    step: int
    """Optimizer steps that led here."""
    lora: bool
    jobs: list[JobState]
    """Jobs that are part of these weights; one of them sent again is not trained again."""


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    path: Path
    state: CheckpointState


class Checkpoints:
    """The checkpoints in one folder; `open` clears away what a crash left half written."""

    def __init__(self, folder: Path, *, keep_last: int) -> None:
        self.folder = folder
        self._keep_last = keep_last

    def open(self) -> Checkpoint | None:
        """Give the newest whole checkpoint, None if there is none; torn ones are passed over."""
        if self.folder.is_dir():
            remove_unfinished(self.folder)
        whole = (checkpoint for path in reversed(self._paths()) if (checkpoint := _read(path)) is not None)
        return next(whole, None)

    def save(self, loaded: LoadedModel, learner: Learner, jobs: list[JobState]) -> Path:
        """Write a checkpoint, point `latest` to it, and delete all but the newest few."""
        target = self.folder / f"step_{learner.step:06d}"
        with whole_folder(target) as folder:
            if loaded.peft is None:
                write_model(loaded, folder)
            else:
                write_adapter(loaded.peft, folder)
            tensors = learner.optimizer.state()
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / _OPTIMIZER)
            state = CheckpointState(step=learner.step, lora=loaded.peft is not None, jobs=jobs)
            (folder / _STATE).write_text(state.model_dump_json(indent=1))
        point(self.folder / LATEST, target.name)
        for path in self._paths()[: -self._keep_last]:
            shutil.rmtree(path)
        return target

    def _paths(self) -> list[Path]:
        """Folders with the name of a checkpoint, oldest step first."""
        if not self.folder.is_dir():
            return []
        found = [(int(match[1]), path) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        return [path for _, path in sorted(found)]


def restore(checkpoint: Checkpoint, loaded: LoadedModel, learner: Learner) -> None:
    """Put optimizer state and step back, and the adapter; full weights come by loading the model from the folder."""
    if checkpoint.state.lora != (loaded.peft is not None):
        was, now = ("a LoRA adapter", "all weights") if checkpoint.state.lora else ("all weights", "a LoRA adapter")
        raise BackendError(
            f"{checkpoint.path} was made by training {was}, and now {now} would be trained",
            hint="resume with the LoRA options of the first start, or choose another output folder",
        )
    if loaded.peft is not None:
        set_peft_model_state_dict(loaded.peft, load_file(checkpoint.path / _ADAPTER_WEIGHTS))
    learner.optimizer.load(load_file(checkpoint.path / _OPTIMIZER))
    learner.step = checkpoint.state.step


def _read(path: Path) -> Checkpoint | None:
    """The checkpoint in `path`, None if something of it is missing or cannot be read."""
    try:
        state = CheckpointState.model_validate_json((path / _STATE).read_text())
    except (OSError, ValidationError):
        return None
    return Checkpoint(path, state) if (path / _OPTIMIZER).is_file() else None

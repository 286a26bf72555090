"""Checkpoints of a training run: numbered folders, each whole, and `latest` that points to the newest.

A folder holds the model as Hugging Face knows it (or the LoRA adapter as peft knows it), `optimizer.safetensors`
and `state.json`. From it training goes on as if it had never stopped.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from peft import set_peft_model_state_dict
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import load_file, save_file

from nat.backend.adapters import ADAPTER_WEIGHTS
from nat.backend.atomic import point, remove_folder, remove_unfinished, whole_folder
from nat.backend.export import write_adapter, write_model
from nat.backend.model import LoadedModel
from nat.backend.training.learner import Learner
from nat.errors import BackendError
from nat.wire.training import JobState

LATEST = "latest"
_STATE = "state.json"
_OPTIMIZER = "optimizer.safetensors"


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
    number: int
    """What its folder is called."""
    state: CheckpointState


@dataclass(frozen=True)
class Layout:
    """What the folders are called, and whether an adapter brings the tokenizer along."""

    prefix: str = "step_"
    digits: int = 6
    tokenizer: bool = False

    def name(self, number: int) -> str:
        return f"{self.prefix}{number:0{self.digits}d}"

    def number(self, name: str) -> int | None:
        """Read a folder's name; None if it is not that of a checkpoint."""
        digits = name.removeprefix(self.prefix)
        number = int(digits) if digits.isascii() and digits.isdigit() else None
        return number if number is not None and self.name(number) == name else None


class Checkpoints:
    """The checkpoints in one folder, of which the newest `keep_last` are kept (None: all)."""

    def __init__(self, folder: Path, *, keep_last: int | None, layout: Layout = Layout()) -> None:
        self.folder = folder
        self._keep_last = keep_last
        self._layout = layout

    def open(self) -> Checkpoint | None:
        """Give the newest whole checkpoint, and clear away what a crash left half written."""
        if self.folder.is_dir():
            remove_unfinished(self.folder)
        return self.newest()

    def newest(self) -> Checkpoint | None:
        """Give the newest whole checkpoint, None if there is none; torn ones are passed over."""
        whole = (found for number in reversed(self.numbers()) if (found := self.find(number)) is not None)
        return next(whole, None)

    def find(self, number: int) -> Checkpoint | None:
        """Give the checkpoint of this number, None if something of it is missing or cannot be read."""
        path = self.folder / self._layout.name(number)
        try:
            state = CheckpointState.model_validate_json((path / _STATE).read_text())
        except (OSError, ValidationError):
            return None
        return Checkpoint(path, number, state) if (path / _OPTIMIZER).is_file() else None

    def numbers(self) -> list[int]:
        """Numbers of the folders that hold a checkpoint, in rising order."""
        if not self.folder.is_dir():
            return []
        found = {path: self._layout.number(path.name) for path in self.folder.iterdir()}
        return sorted(n for path, n in found.items() if n is not None and (path / _STATE).is_file())

    def save(self, loaded: LoadedModel, learner: Learner, jobs: list[JobState], *, number: int | None = None) -> Path:
        """Write a checkpoint, point `latest` to it, and delete those that are too old; its number is the step's."""
        target = self.folder / self._layout.name(learner.step if number is None else number)
        with whole_folder(target) as folder:
            if loaded.peft is None:
                write_model(loaded, folder)
            else:
                write_adapter(loaded, folder)
                if self._layout.tokenizer:
                    loaded.tokenizer.hf.save_pretrained(folder)
            tensors = learner.optimizer.state()
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / _OPTIMIZER)
            state = CheckpointState(step=learner.step, lora=loaded.peft is not None, jobs=jobs)
            (folder / _STATE).write_text(state.model_dump_json(indent=1))
        point(self.folder / LATEST, target.name)
        if self._keep_last is not None:
            self.delete(self.numbers()[: -self._keep_last])
        return target

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete checkpoints; whoever comes at the same time sees each of them whole or not at all."""
        for number in numbers:
            remove_folder(self.folder / self._layout.name(number))


def restore(checkpoint: Checkpoint, loaded: LoadedModel, learner: Learner) -> None:
    """Put the adapter back, then the rest as `resume`; full weights come by loading the model from the folder."""
    if checkpoint.state.lora != (loaded.peft is not None):
        was, now = ("a LoRA adapter", "all weights") if checkpoint.state.lora else ("all weights", "a LoRA adapter")
        raise BackendError(
            f"{checkpoint.path} was made by training {was}, and now {now} would be trained",
            hint="resume with the LoRA options of the first start, or choose another output folder",
        )
    if loaded.peft is not None:
        weights = load_file(checkpoint.path / ADAPTER_WEIGHTS)
        set_peft_model_state_dict(loaded.peft, weights, adapter_name=loaded.adapter)
    resume(checkpoint, learner)


def resume(checkpoint: Checkpoint, learner: Learner) -> None:
    """Put optimizer state and step back, where the weights are the checkpoint's already."""
    learner.optimizer.load(load_file(checkpoint.path / _OPTIMIZER))
    learner.step = checkpoint.state.step

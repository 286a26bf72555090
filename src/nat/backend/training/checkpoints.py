"""Checkpoints of a training run: numbered folders, written atomically, and a link `latest` to the newest.

A folder has the model in Hugging Face's format (or the LoRA adapter in peft's), `state.json` and a manifest; the newest
one also `optimizer.safetensors`. A run that resumes from it continues as if it had never stopped.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from peft import set_peft_model_state_dict
from safetensors.torch import load_file, save_file

from nat.backend.checkpoint_folder import (
    ADAPTER_WEIGHTS,
    CheckpointState,
    TrainedJob,
    read_state,
    verify,
    write_manifest,
)
from nat.backend.export import write_trained
from nat.backend.model import LoadedModel
from nat.backend.training.learner import Learner
from nat.errors import BackendError, CheckpointDamaged
from nat.files import remove_folder, remove_unfinished, replace_link, replacing_folder
from nat.wire.model_folder import OPTIMIZER, REMOTE_WEIGHTS, STATE, forget_optimizer
from nat.wire.serving import BEST_CHECKPOINT, NEWEST_CHECKPOINT, NOTICES

notices = logging.getLogger(NOTICES)

DAMAGED = ".damaged"
"""Suffix of the name of a damaged checkpoint, which is set aside when an older one is resumed."""


Write = Callable[[Path, LoadedModel, Any, TrainedJob | None], None]


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    number: int
    """The number in its folder's name."""
    state: CheckpointState


@dataclass(frozen=True)
class Layout:
    """Names of the folders, and whether an adapter is saved with the tokenizer."""

    prefix: str = "step_"
    digits: int = 6
    tokenizer: bool = False

    def name(self, number: int) -> str:
        return f"{self.prefix}{number:0{self.digits}d}"

    def number(self, name: str) -> int | None:
        """Parse a folder's name; None if it is not a checkpoint's."""
        digits = name.removeprefix(self.prefix)
        number = int(digits) if digits.isascii() and digits.isdigit() else None
        return number if number is not None and self.name(number) == name else None


class Checkpoints:
    """The checkpoints in one folder, of which the newest `keep_last` are kept (None: all).

    A killed run goes on from the newest, which alone keeps the optimizer's state. The one before it is for a disk that
    damages the newest: training then goes on from its weights, with moments that begin anew.
    """

    def __init__(
        self, folder: Path, *, keep_last: int | None, layout: Layout = Layout(), write: Write | None = None
    ) -> None:
        """`write` makes the folder of a checkpoint; by default from a learner of this process."""
        self.folder = folder
        self._keep_last = keep_last
        self._layout = layout
        self._write = write or partial(write_checkpoint, tokenizer=layout.tokenizer)
        self._phase: int | None = None
        """The checkpoint with whose weights the phase began; None in the first phase, which began with the model's."""

    def open(self) -> Checkpoint | None:
        """Give the newest undamaged checkpoint, and delete what a crash left unfinished.

        Newer checkpoints are damaged; they are set aside, so that training continues from the one that is given.
        """
        if self.folder.is_dir():
            remove_unfinished(self.folder)
        damaged: list[tuple[int, CheckpointDamaged]] = []
        for number in reversed(self._folders()):
            path = self.folder / self._layout.name(number)
            try:
                found = Checkpoint(path, number, verify(path))
            except CheckpointDamaged as error:
                damaged.append((number, error))
            else:
                self._set_aside(damaged, found)
                replace_link(self.folder / NEWEST_CHECKPOINT, path.name)  # after a crash it may name another one
                if not any((path / name).is_file() for name in (OPTIMIZER, REMOTE_WEIGHTS)):
                    notices.warning("%s has the weights alone, so the optimizer's moments begin anew", path.name)
                self._phase = found.state.first_step or None
                return found
        if damaged:
            seen = "\n".join(f"  {self._layout.name(number)}: {'; '.join(error.findings)}" for number, error in damaged)
            raise BackendError(
                f"{self.folder} holds no undamaged checkpoint:\n{seen}",
                hint="restore the files of one of them, or move the folder away to start from the beginning",
            )
        return None

    def newest(self) -> Checkpoint | None:
        """Give the newest checkpoint with all of its files, None if there is none; checksums are not compared."""
        whole = (found for number in reversed(self._folders()) if (found := self.find(number)) is not None)
        return next(whole, None)

    def phase_of(self, checkpoint: Checkpoint) -> Path | None:
        """The folder of the weights that the checkpoint's phase began with; None in the first phase."""
        if not (number := checkpoint.state.first_step):
            return None
        path = self.folder / self._layout.name(number)
        try:
            verify(path)
        except CheckpointDamaged as error:
            seen = f"{path}, with whose weights the phase of {checkpoint.path.name} began, is missing or damaged"
            raise BackendError(f"{seen}: {'; '.join(error.findings)}", hint="restore the folder from a copy") from error
        return path

    def find(self, number: int) -> Checkpoint | None:
        """Give the checkpoint of this number, None if a file is missing or truncated."""
        path = self.folder / self._layout.name(number)
        try:
            return Checkpoint(path, number, read_state(path, optimizer=False))
        except CheckpointDamaged:
            return None

    def numbers(self) -> list[int]:
        """Numbers of the checkpoints, ascending."""
        return [number for number in self._folders() if (self.folder / self._layout.name(number) / STATE).is_file()]

    def newest_jobs(self) -> tuple[TrainedJob | None, TrainedJob | None]:
        """The last jobs of the newest checkpoint, and of the one that is opened if that is damaged.

        If only one is kept, its own job twice: nothing goes on without it.
        """
        newest = [found.state.job for number in self.numbers()[-2:] if (found := self.find(number)) is not None]
        if not newest:
            return None, None
        return newest[-1], newest[0] if len(newest) > 1 or self._keep_last == 1 else None

    def _folders(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        found = (self._layout.number(path.name) for path in self.folder.iterdir() if path.is_dir())
        return sorted(number for number in found if number is not None)

    def _set_aside(self, damaged: list[tuple[int, CheckpointDamaged]], instead: Checkpoint) -> None:
        for number, error in damaged:
            path = self.folder / self._layout.name(number)
            aside = path.with_name(f"{path.name}{DAMAGED}")
            remove_folder(aside)
            path.replace(aside)
            notices.warning(
                "%s; it is now %s, and training continues from %s", error.message, aside.name, instead.path.name
            )
        best = self.folder / BEST_CHECKPOINT
        if best.is_symlink() and not best.exists():
            notices.warning("the best checkpoint, %s, is damaged or missing, too", best.readlink())
            best.unlink()

    def save(self, loaded: LoadedModel, learner: Any, job: TrainedJob | None, *, number: int | None = None) -> Path:
        """Write a checkpoint, point `latest` to it, and delete the oldest ones.

        Its weights contain the job; its number defaults to the step.
        """
        target = self.folder / self._layout.name(learner.step if number is None else number)
        self._write(target, loaded, learner, job)
        replace_link(self.folder / NEWEST_CHECKPOINT, target.name)
        self._phase = learner.first_step or None
        self._prune()
        return target

    def keep_best(self, number: int) -> Path:
        """Keep this checkpoint as the best, in place of the one that was kept before."""
        target = self.folder / self._layout.name(number)
        replace_link(self.folder / BEST_CHECKPOINT, target.name)
        self._prune()
        return target

    def _prune(self) -> None:
        for number in self.numbers()[:-1]:
            forget_optimizer(self.folder / self._layout.name(number))
        if self._keep_last is not None:
            best = self.folder / BEST_CHECKPOINT
            kept = self._layout.number(best.readlink().name) if best.is_symlink() else None
            # That of the phase's beginning is the reference of the KL term.
            self.delete(number for number in self.numbers()[: -self._keep_last] if number not in {kept, self._phase})

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete checkpoints atomically: a concurrent reader sees each of them whole or not at all."""
        for number in numbers:
            remove_folder(self.folder / self._layout.name(number))


def write_checkpoint(
    target: Path,
    loaded: LoadedModel,
    learner: Learner,
    job: TrainedJob | None,
    *,
    tokenizer: bool = False,
    more: Mapping[str, str] | None = None,
) -> None:
    """Write weights, optimizer and state to a folder at once; `more` has texts by the names of further files."""
    with replacing_folder(target) as folder:
        write_trained(loaded, folder)
        if tokenizer and loaded.peft is not None:
            loaded.tokenizer.hf.save_pretrained(folder)
        tensors = learner.optimizer.state()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / OPTIMIZER)
        state = CheckpointState(
            step=learner.step,
            first_step=learner.first_step,
            lora=loaded.peft is not None,
            load_in_4bit=loaded.in_four_bits,
            job=job,
        )
        (folder / STATE).write_text(state.model_dump_json(indent=1))
        for name, text in (more or {}).items():
            (folder / name).write_text(text)
        write_manifest(folder, "checkpoint")


def restore(checkpoint: Checkpoint, loaded: LoadedModel, learner: Learner, phase: Path | None = None) -> None:
    """Load adapter, optimizer state and step; full weights are loaded with the model from the folder.

    An adapter at the `phase`'s beginning is the reference again.
    """
    if checkpoint.state.lora != (loaded.peft is not None):
        was, now = ("a LoRA adapter", "all weights") if checkpoint.state.lora else ("all weights", "a LoRA adapter")
        raise BackendError(
            f"{checkpoint.path} was made by training {was}, but this run trains {now}",
            hint="resume with the LoRA options of the first start, or choose another output folder",
        )
    if phase is not None and loaded.peft is not None:
        _load_adapter(phase, loaded)
        learner.reference.begin_here()
    if loaded.peft is not None:
        _load_adapter(checkpoint.path, loaded)
    resume(checkpoint, loaded, learner)


def _load_adapter(folder: Path, loaded: LoadedModel) -> None:
    assert loaded.peft is not None, "an adapter is trained"
    set_peft_model_state_dict(loaded.peft, load_file(folder / ADAPTER_WEIGHTS), adapter_name=loaded.adapter)


def resume(checkpoint: Checkpoint, loaded: LoadedModel, learner: Learner) -> None:
    """Load optimizer state, if there is one, and step; the weights are the checkpoint's already."""
    if checkpoint.state.load_in_4bit != loaded.in_four_bits:
        was, now = ("with", "without") if checkpoint.state.load_in_4bit else ("without", "with")
        raise BackendError(
            f"{checkpoint.path} was made {was} load_in_4bit, but the model is loaded {now} it",
            hint=f"resume {was} load_in_4bit, or choose another output folder",
        )
    state = checkpoint.path / OPTIMIZER
    learner.optimizer.load(load_file(state) if state.is_file() else {})
    learner.step, learner.first_step = checkpoint.state.step, checkpoint.state.first_step

"""The models that Tinker's clients train, their saved weights, and how requests name these.

A model's id is `SESSION:train:NUMBER`, its folder `OUTPUT_DIR/SESSION/NUMBER`. In there, `weights/NAME` has weights and
optimizer, `sampler_weights/NAME` the weights alone: they can be named after a restart, too. Models themselves live as
long as the process, so a client goes on from a saved state.
"""

import logging
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future
from math import inf
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic_core import from_json

from nat.backend.algorithms.registry import Resolved
from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS, OF_TRAINING, check_weights, verify, write_manifest
from nat.backend.export import write_trained
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.lora import Adapter, LoraSettings
from nat.backend.model import LoadedModel
from nat.backend.models import Models
from nat.backend.training.batch import Row
from nat.backend.training.checkpoints import Checkpoint, resume, write_checkpoint
from nat.backend.training.learner import Learner
from nat.backend.training.loss import ByRow
from nat.errors import BatchRefused, ModelNotPrepared, ModelNotServed, NameRefused, TooManyModels
from nat.files import remove_folder, replacing_folder
from nat.secrets import excerpt
from nat.tinker.options import TinkerServeOptions
from nat.tinker.server.wire import AdamParams
from nat.wire.model_folder import ADAPTER_CONFIG, MANIFEST, hub_model, is_adapter, is_model
from nat.wire.training import FILE_NAME, TrainingConfig

logger = logging.getLogger(__name__)

SILENT_SECONDS = 300.0
"""A model of a session without a heartbeat for so long gives its place to a new one."""
MAX_UNNAMED, MAX_UNNAMED_MODELS = 16, 2
"""Adapters, and whole models, without a name that are kept for sampling; those that were saved before are deleted."""
UNNAMED = "_unnamed-"
_PATH = re.compile(
    rf"tinker://([0-9a-f]{{32}}):train:(\d{{1,9}})/(weights|sampler_weights)/((?:{UNNAMED})?{FILE_NAME})", re.ASCII
)
_SEEN_CHARS = 200
T = TypeVar("T")


class WeightsPath(NamedTuple):
    """Saved weights, as `tinker://MODEL/KIND/NAME` names them."""

    model_id: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"tinker://{self.model_id}/{self.kind}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "WeightsPath":
        """Read a path; NameRefused if it is none of this server's."""
        if (found := _PATH.fullmatch(text)) is None:
            seen = excerpt(repr(text), _SEEN_CHARS)
            raise NameRefused(f"{seen} is no path of saved weights, as tinker://MODEL/weights/NAME is")
        session, number, kind, name = found.groups()
        return cls(f"{session}:train:{number}", kind, name)


class TrainedModel(NamedTuple):
    """A model in memory, for the model thread."""

    loaded: LoadedModel
    adapter: Adapter | None
    """None if all weights are trained."""
    learner: Learner

    @property
    def rank(self) -> int:
        """That of the adapter; 0 if all weights are trained."""
        return 0 if self.adapter is None else self.adapter.settings.rank


class TinkerModels(Models):
    """All adapters on one base, and perhaps one model of which all weights are trained.

    Futures are of work on the model thread, first come, first served.
    """

    def __init__(self, base: LoadedModel, options: TinkerServeOptions) -> None:
        """Serve a base model that has no adapter yet."""
        super().__init__(base, options)
        self._options = options
        hub = hub_model(base.path)
        self.name = options.served_model_name or (options.name if hub is None else hub.name)
        self.tokenizer = str(base.path.resolve()) if hub is None else hub.name
        self.heard: dict[str, float] = {}
        """When each session was heard last; one of a server before a restart goes on."""
        self._models: dict[str, TrainedModel] = {}
        self.worker = Worker(self._engine, self)

    def check_base(self, name: str) -> None:
        """Raise ModelNotServed for the name of another base model; the owner's part of a name may be left out."""
        if name.rpartition("/")[2] not in {self.name.rpartition("/")[2], self._options.name}:
            raise ModelNotServed(f"base_model {name!r} is not served here", hint=f"this server has {self.name!r}")

    def model(self, model_id: str) -> TrainedModel:
        """A model in memory; ModelNotPrepared if there is none."""
        if (model := self._models.get(model_id)) is None:
            raise ModelNotPrepared(
                f"model {model_id!r} is not in memory: the server was restarted, or gave its place to another",
                hint="create a training client from a saved state",
            )
        return model

    def create(self, model_id: str, rank: int | None, seed: int | None) -> Future[None]:
        """Make a model whose outputs are still those of the base; with rank 0 all its weights will be trained."""
        rank = self._options.lora_rank if rank is None else rank

        def make() -> None:
            self._make_room(model_id, all_weights=rank == 0)
            if rank == 0:
                self._hold(model_id, self.whole_model(self.base.path))
                return
            lora = LoraSettings(rank, self._options.lora_alpha)
            self._hold_adapter(model_id, self._adapters.create(lora, seed=self._options.seed if seed is None else seed))

        return self.worker.run_exclusive(make)

    def load(self, model_id: str, source: WeightsPath, *, optimizer: bool) -> Future[None]:
        """Go on from saved weights, in a new model or in place of the weights of one."""

        def load() -> None:
            folder, before = self.folder(source), self._models.get(model_id)
            if optimizer and source.kind != "weights":
                raise BatchRefused(f"{source} has no optimizer; save a state, or load the weights alone")
            rank = self.rank(source)
            if before is not None and rank != before.rank:
                raise BatchRefused(f"{source} has rank {rank}, not that of the model")
            state = verify(folder) if source.kind == "weights" else None
            self._make_room(model_id, all_weights=rank == 0)
            if rank:
                held = self._hold_adapter(model_id, self._adapters.load(folder))
            else:
                check_weights(folder)
                held = self._hold(model_id, self.whole_model(folder))
            if optimizer and state is not None:
                resume(Checkpoint(folder, 0, state), held.loaded, held.learner)

        return self.worker.run_exclusive(load)

    def accumulate(
        self, model_id: str, rows: Sequence[Row], loss: Resolved, *, gradient: bool
    ) -> Future[tuple[float, ByRow]]:
        """Compute a loss and, unless it is a forward pass only, add its gradient to the model's."""

        def run() -> tuple[float, ByRow]:
            model = self.model(model_id)
            if model.adapter is not None:
                self._adapters.activate(model.adapter)
            return model.learner.accumulate(rows, loss, gradient=gradient)

        return self.worker.run_exclusive(run)

    def step(self, model_id: str, adam: AdamParams) -> Future[dict[str, float]]:
        """Take one step of AdamW along the accumulated gradient."""
        betas = {"adam_beta1": adam.beta1, "adam_beta2": adam.beta2}
        config = TrainingConfig(**betas, adam_epsilon=adam.eps, weight_decay=adam.weight_decay)

        def run() -> dict[str, float]:
            learner = self.model(model_id).learner
            if not learner.optimizer.with_gradient():
                raise BatchRefused("optim_step without a gradient; call forward_backward first")
            return learner.apply(config, adam.learning_rate, max_norm=adam.grad_clip_norm or inf)

        return self.worker.run_exclusive(run)

    def save(self, target: WeightsPath, *, overwrite: bool) -> Future[None]:
        """Write a model's weights, for `weights` with the optimizer."""

        def run() -> None:
            model, folder = self.model(target.model_id), self._place(target)
            if folder.exists() and not overwrite:
                raise NameRefused(f"{target} exists already; choose another name, or set overwrite")
            unnamed = sorted(folder.parent.glob(f"{UNNAMED}*"), key=lambda path: path.stat().st_mtime_ns)
            most = MAX_UNNAMED if model.rank else MAX_UNNAMED_MODELS
            for old in (folder, *unnamed[: 1 - most]):
                self._remove(old)
            if target.kind == "weights":
                write_checkpoint(folder, model.loaded, model.learner, None)
                return
            with replacing_folder(folder) as draft:
                write_trained(model.loaded, draft)
                write_manifest(draft, "export")

        return self.worker.run_exclusive(run)

    def unload(self, model_id: str) -> Future[None]:
        """Give a model's memory back; nothing happens if it has none."""
        return self.worker.run_exclusive(lambda: self._drop(model_id))

    def delete(self, path: WeightsPath) -> Future[None]:
        """Delete saved weights; ModelNotServed at once if they are not there, since the deletion waits for answers."""
        folder = self.folder(path)
        return self.worker.run_exclusive(lambda: self._remove(folder))

    def saved(self, model_id: str = "*:train:*") -> list[WeightsPath]:
        """The saved weights of a model, or of all."""
        session, _, number = model_id.split(":")
        found = self._options.output_dir.glob(f"{session}/{number}/*weights/*/{MANIFEST}")
        return [WeightsPath(f"{p[-5]}:train:{p[-4]}", p[-3], p[-2]) for p in (path.parts for path in sorted(found))]

    def folder(self, path: WeightsPath) -> Path:
        """Where saved weights are; ModelNotServed if they are not there, or no longer."""
        if not is_model(folder := self._place(path)):
            raise ModelNotServed(f"{path} is not saved here (any more)")
        return folder

    def rank(self, path: WeightsPath) -> int:
        """The rank of saved weights; 0 for those of a whole model."""
        folder = self.folder(path)
        return int(from_json((folder / ADAPTER_CONFIG).read_bytes())["r"]) if is_adapter(folder) else 0

    def files(self, path: WeightsPath) -> list[Path]:
        """The files of an adapter or a model, without those of its training."""
        if is_adapter(folder := self.folder(path)):
            return [folder / ADAPTER_CONFIG, folder / ADAPTER_WEIGHTS]
        return sorted(file for file in folder.iterdir() if file.is_file() and file.name not in OF_TRAINING)

    def names(self) -> list[str]:
        return [self.name, *map(str, self.saved())]

    def engine(self, name: str) -> Engine:
        if name.startswith("tinker://"):
            return self.kept_engine(self.folder(WeightsPath.parse(name)), name)
        if name:
            self.check_base(name)
        return self._engine

    def _remove(self, folder: Path) -> None:
        self.forget_folders(folder)
        remove_folder(folder)

    def _place(self, path: WeightsPath) -> Path:
        session, _, number = path.model_id.split(":")
        return self._options.output_dir / session / number / path.kind / path.name

    def _hold_adapter(self, model_id: str, adapter: Adapter) -> TrainedModel:
        try:
            return self._hold(model_id, adapter.loaded, adapter)
        except BaseException:
            self._adapters.remove(adapter)
            raise

    def _hold(self, model_id: str, loaded: LoadedModel, adapter: Adapter | None = None) -> TrainedModel:
        """Train these weights from here on, in place of those that the model had."""
        held = TrainedModel(loaded, adapter, self.new_learner(loaded))
        self._drop(model_id)
        self._models[model_id] = held
        return held

    def _drop(self, model_id: str) -> None:
        if (model := self._models.pop(model_id, None)) is not None and model.adapter is not None:
            self._adapters.remove(model.adapter)

    def _make_room(self, model_id: str, *, all_weights: bool) -> None:
        """Raise TooManyModels unless one more fits, or a model of a silent client can be given up."""
        if all_weights and not self._options.all_weights:
            raise BatchRefused(
                "this server trains adapters only", hint="start it with --all_weights, or ask for a rank"
            )
        if model_id in self._models:
            return
        whole = [name for name, model in self._models.items() if model.adapter is None]
        if all_weights and whole:
            self._give_up(whole, "all weights of one model", "wait for the end of its client")
        if len(self._models) >= self._options.max_models:
            held = f"{self._options.max_models} models"
            self._give_up(list(self._models), held, "start it with a higher --max_models, or end a client")

    def _give_up(self, names: Sequence[str], held: str, hint: str) -> None:
        since = time.monotonic() - SILENT_SECONDS
        silent = (name for name in names if self.heard.get(name.partition(":")[0], -inf) < since)
        if (given_up := next(silent, None)) is None:
            raise TooManyModels(f"this server holds {held}, and all their clients are there", hint=hint)
        logger.warning("%s is given up: its client sends no heartbeat any more", given_up)
        self._drop(given_up)

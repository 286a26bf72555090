"""The models in memory, and the engine of each name: the base, each model's newest weights, a few old ones.

Old weights are read from their checkpoint when a request names them. So are the weights of
a model that no client has prepared since the start.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from nat.art.server.batch import ArtBatch
from nat.art.server.store import ModelKey, ModelReference, Store, artifact, parse, version
from nat.backend.algorithms.registry import resolve
from nat.backend.checkpoint_folder import verify
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.lora import Adapter, Adapters
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import Job
from nat.backend.training.learner import Learner, OnStep, Report
from nat.errors import ModelNotServed
from nat.files import remove_folder
from nat.wire.training import JobState

logger = logging.getLogger(__name__)

MAX_BASE_NAMES = 100
"""Names that clients have for the base model; the oldest are dropped."""
MAX_OLD = 2
"""Old weights that stay loaded although no request uses them."""


@dataclass(eq=False)
class PreparedModel:
    """A model that can be trained and sampled, for the model thread.

    `step` counts its training calls; the learner counts optimizer steps.
    """

    key: ModelKey
    adapter: Adapter
    learner: Learner
    engine: Engine
    checkpoints: Checkpoints
    step: int
    job: Job | None = None
    """The newest training call."""

    @property
    def busy(self) -> bool:
        """True while a training call waits or runs."""
        return self.job is not None and not self.job.state.status.final

    def has(self, step: int) -> bool:
        """True if the weights after `step` training calls can be served."""
        return step == self.step or self.checkpoints.find(step) is not None

    def train(self, batch: ArtBatch, job: Job, *, report: Report, on_step: OnStep) -> JobState:
        """Train, save, and only then serve; after a failure weights, optimizer and step are as before.

        A batch without signal trains nothing, but counts as a training call: it has a step, a checkpoint and one line
        of metrics.
        """
        optimizer_step, number = self.learner.step, self.step + 1
        try:
            with self.learner.all_or_nothing():
                metrics = self._update(batch, report, on_step)
                done = job.completed(metrics, version(self.key.name, number))
                self.checkpoints.save(self.adapter.loaded, self.learner, [done], number=number)
        except BaseException:
            self.checkpoints.delete([number])
            raise
        self.step = number
        self.engine.policy_version = version(self.key.name, number)
        logger.info("%s is at step %d, %d optimizer steps later", self.key, number, self.learner.step - optimizer_step)
        return done

    def _update(self, batch: ArtBatch, report: Report, on_step: OnStep) -> dict[str, float]:
        if not batch.groups:
            on_step({"num_gradient_steps": 0.0})
            return {}
        return self.learner.update(batch.groups, resolve(batch.config), report=report, on_step=on_step)


class _OldWeights(NamedTuple):
    adapter: Adapter
    engine: Engine


class ModelPool:
    """All weights on one base model. Any thread may look up names; engines belong to the model thread."""

    def __init__(self, adapters: Adapters, store: Store, *, name: str, limits: EngineLimits) -> None:
        self._adapters = adapters
        self._store = store
        self._limits = limits
        self.base = self.new_engine(None, name)
        self._base_names = {name: None}
        self._models: dict[ModelKey, PreparedModel] = {}
        self._by_name: dict[str, PreparedModel] = {}
        self._entities: dict[ModelKey, str] = {}
        self._old: OrderedDict[tuple[ModelKey, int], _OldWeights] = OrderedDict()

    def new_engine(self, adapter: Adapter | None, policy_version: str) -> Engine:
        """Make an engine that activates this adapter before it computes."""
        return Engine(
            self._adapters.base,
            policy_version=policy_version,
            limits=self._limits,
            activate=lambda: self._adapters.activate(adapter),
        )

    def name_base(self, name: str) -> None:
        """Let the base answer to one more name, unless a model has it."""
        self._base_names[name] = None
        if len(self._base_names) > MAX_BASE_NAMES:
            del self._base_names[list(self._base_names)[1]]  # the first one is the server's own

    def serve(self, model: PreparedModel, *, entity: str | None = None) -> None:
        """Let a model answer to its names; its plain name belongs to the model that was served last."""
        other = self._by_name.get(model.key.name)
        if other is not None and other is not model:
            logger.warning("%s is now the model of %s, no longer of %s", model.key.name, model.key, other.key)
        if entity is not None:
            self._entities[model.key] = entity
        self._models[model.key] = self._by_name[model.key.name] = model

    def drop(self, key: ModelKey) -> None:
        """Stop answering to a model's names, free its weights and delete its files, while nothing runs."""
        remove_folder(self._store.folder(key))
        self._entities.pop(key, None)
        for place in [place for place in self._old if place[0] == key]:
            self._adapters.remove(self._old.pop(place).adapter)
        if (model := self._models.pop(key, None)) is not None:  # it may be gone by another request
            self._adapters.remove(model.adapter)
            if self._by_name[key.name] is model:
                del self._by_name[key.name]

    def release(self) -> None:
        """Free the memory of all caches for an update, while nothing runs."""
        for engine in self.engines():
            engine.release()

    @property
    def num_models(self) -> int:
        """Models whose weights are in memory to be trained."""
        return len(self._models)

    def find(self, key: ModelKey) -> PreparedModel | None:
        return self._models.get(key)

    def names(self) -> list[str]:
        """All names, including those of models that are on disk only."""
        stored = self._store.saved()
        plain = {key.name: key for key in stored} | {name: model.key for name, model in list(self._by_name.items())}
        listed = list(self._base_names)
        for key in dict.fromkeys((*stored, *list(self._models))):
            steps = self._store.checkpoints(key).numbers()
            if plain[key.name] == key:
                listed += [key.name, *(version(key.name, step) for step in steps)]
            if (entity := self._entities.get(key)) is not None:
                listed += [artifact(entity, key, step) for step in (None, *steps)]
        return list(dict.fromkeys(listed))

    def knows(self, name: str) -> bool:
        reference = parse(name)
        model = self._model(reference)
        if model is not None:
            return reference.step is None or model.has(reference.step)
        return name in self._base_names or self._stored(reference) is not None

    def engine(self, name: str) -> Engine:
        reference = parse(name)
        model = self._model(reference)
        if model is not None:
            if reference.step is None or reference.step == model.step:
                return model.engine
            return self._old_engine(model.key, model.checkpoints, reference.step)
        if not name or name in self._base_names:
            return self.base
        stored = self._stored(reference)
        if stored is None:
            raise ModelNotServed(f"model {name!r} is not served here", hint="GET /v1/models lists all names")
        return self._old_engine(*stored)

    def engines(self) -> list[Engine]:
        return [
            self.base,
            *(model.engine for model in self._models.values()),
            *(old.engine for old in self._old.values()),
        ]

    def _model(self, reference: ModelReference) -> PreparedModel | None:
        if reference.project is None:
            return self._by_name.get(reference.name)
        return self._models.get(ModelKey(reference.project, reference.name))

    def _stored(self, reference: ModelReference) -> tuple[ModelKey, Checkpoints, int] | None:
        """An unprepared model on disk, and the step of the reference."""
        saved = self._store.saved(reference.name).items()
        known = [item for item in saved if reference.project in {None, item[0].project}]
        if not known:
            return None
        key, newest = known[-1]
        checkpoints = self._store.checkpoints(key)
        found = newest if reference.step is None else checkpoints.find(reference.step)
        return None if found is None else (key, checkpoints, found.number)

    def _old_engine(self, key: ModelKey, checkpoints: Checkpoints, step: int) -> Engine:
        place = (key, step)
        self._forget(keep=MAX_OLD - (place not in self._old))
        if place not in self._old:
            checkpoint = checkpoints.find(step)
            if checkpoint is None:
                raise ModelNotServed(
                    f"{key} has no checkpoint of step {step} (any more)", hint="GET /v1/models lists all names"
                )
            verify(checkpoint.path)
            adapter = self._adapters.load(checkpoint.path)
            self._old[place] = _OldWeights(adapter, self.new_engine(adapter, version(key.name, step)))
        self._old.move_to_end(place)
        return self._old[place].engine

    def _forget(self, *, keep: int) -> None:
        """Drop the least recently used of the old weights that no request waits for."""
        idle = [place for place, old in self._old.items() if not old.engine.requests]
        for place in idle[: max(0, len(self._old) - keep)]:
            self._adapters.remove(self._old.pop(place).adapter)

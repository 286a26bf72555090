"""The models that ART's clients registered: adapters on one base model, trained in turn, served side by side.

A model's step is the number of its training calls, and each has a checkpoint. A client that prepares the model again,
even after a restart, goes on from the newest one. Old weights, and those of a model that no client has prepared since
the start, are read from their checkpoint when a request names them.
"""

import asyncio
import logging
import uuid
from collections.abc import Collection
from dataclasses import dataclass

from nat.art.options import ArtServeOptions
from nat.art.server.batch import ArtBatch
from nat.art.server.store import ModelKey, ModelReference, Store, key_of, parse, version
from nat.art.server.training_call import TrainingCall
from nat.art.wire import ArtModel, InternalModelConfig, PeftArgs, Serving
from nat.backend.algorithms.registry import resolve
from nat.backend.checkpoint_folder import TrainedJob
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.lora import Adapter, LoraSettings
from nat.backend.model import LoadedModel
from nat.backend.models import Models
from nat.backend.training.checkpoints import Checkpoints, resume
from nat.backend.training.job_table import Job, JobTable
from nat.backend.training.learner import Learner, OnStep, Report
from nat.errors import ModelBusy, ModelNotPrepared, ModelNotServed, NameRefused, TooManyModels
from nat.files import remove_folder
from nat.secrets import excerpt
from nat.wire.training import JobState

logger = logging.getLogger(__name__)

_KNOWN = {
    "init_args": {"max_seq_length"},
    "engine_args": set[str](),
    "peft_args": {"r", "lora_alpha"},
    "torchtune_args": set[str](),
}
"""The settings of each block that have an effect here; those of `trainer_args` all do."""


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
                metrics = {}
                if batch.groups:
                    metrics = self.learner.update(batch.groups, resolve(batch.config), report=report, on_step=on_step)
                else:
                    on_step({"num_gradient_steps": 0.0})
                done = job.completed(metrics, version(self.key.name, number))
                self.checkpoints.save(self.adapter.loaded, self.learner, TrainedJob(state=done), number=number)
        except BaseException:
            self.checkpoints.delete([number])
            raise
        self.step = number
        self.engine.policy_version = version(self.key.name, number)
        logger.info("%s is at step %d, %d optimizer steps later", self.key, number, self.learner.step - optimizer_step)
        return done


class ArtModels(Models):
    """All weights on one base model, with their names, steps and training calls.

    Clients' requests call it on the event loop; only `prepare` and `remove` wait for the model thread, to which the
    engines belong. A name that cannot be a folder's is a NameRefused everywhere.
    """

    def __init__(self, base: LoadedModel, options: ArtServeOptions) -> None:
        """Serve a base model that has no adapter yet."""
        super().__init__(base, options)
        self._options = options
        self._store = Store(options.output_dir)
        self.jobs = JobTable()
        """The updates of all models."""
        self._base_names = {options.name: None}
        self._models: dict[ModelKey, PreparedModel] = {}
        self._by_name: dict[str, PreparedModel] = {}
        self.worker = Worker(self._engine, self)

    def register(self, model: ArtModel) -> None:
        """Let the base model answer to the name that the client has for it; may be repeated."""
        key, served = self._key(model), self._options.name
        if not model.trainable or model.base_model is None or self.knows(model.base_model):
            return
        if model.base_model.rpartition("/")[2] != served:
            logger.warning("%s requests the base model %r; here it is %s", key, model.base_model, served)
        self._base_names[model.base_model] = None

    async def prepare(self, model: ArtModel) -> None:
        """Make a model's weights, or restore them, and serve them; does nothing for a model that is not trainable.

        Its plain name belongs to the model that was prepared last.

        Raises:
            BackendError: its newest checkpoint cannot be restored.
            ModelNotSupported: the requested adapter is too large for the base model.
            TooManyModels: there is no room for one more.

        """
        key = self._key(model)
        self.register(model)
        if not model.trainable:
            return
        prepared = self._models.get(key)
        if prepared is None:
            making = self.worker.run_between(lambda: self._make(key, model.internal_config))
            prepared = await asyncio.wrap_future(making)
        self._serve(prepared)

    def serving(self, model: ArtModel) -> Serving:
        """The base model, and which requested settings have no effect here."""
        notes = notes_on(model.internal_config, limit=self.base.max_seq_length)
        return Serving(base_model=self._options.name, notes=notes)

    def step(self, model: ArtModel) -> int:
        """Training calls so far, by the served weights or else by the newest checkpoint on disk; 0 if there is none."""
        key = self._key(model)
        if (prepared := self._models.get(key)) is not None:
            return prepared.step
        newest = self._store.checkpoints(key).newest()
        return 0 if newest is None else newest.number

    def steps(self, model: ArtModel) -> list[int]:
        """All checkpoints on disk, oldest first."""
        return self._store.checkpoints(self._key(model)).numbers()

    def train(self, model: ArtModel, batch: ArtBatch) -> TrainingCall:
        """Begin a training call.

        Raises:
            ModelBusy: one runs or waits already.
            ModelNotPrepared: there are no weights to train.

        """
        key = self._key(model)
        prepared = self._models.get(key)
        if prepared is None:
            raise ModelNotPrepared(
                f"{key} has no weights to train", hint="POST /_prepare_backend_for_training first, as register() does"
            )
        _check_idle(prepared)
        job = prepared.job = self.jobs.add(uuid.uuid4().hex)
        call = TrainingCall(job, batch)

        def update() -> None:
            self._adapters.activate(prepared.adapter)
            job.run(lambda report: prepared.train(batch, job, report=report, on_step=call.on_step))

        self.worker.run_exclusive(update)
        return call

    def job(self, job_id: str) -> JobState | None:
        return self.jobs.get(job_id)

    async def delete(self, model: ArtModel, steps_to_keep: Collection[int]) -> list[int]:
        """Delete the other checkpoints, but never the newest; gives the deleted steps."""
        newest, checkpoints = self.step(model), self._store.checkpoints(self._key(model))
        gone = [step for step in checkpoints.numbers() if step < newest and step not in steps_to_keep]
        await asyncio.to_thread(checkpoints.delete, gone)
        return gone

    async def remove(self, model: ArtModel) -> None:
        """Stop serving a model and delete all its files.

        Raises:
            ModelBusy: it is being trained.

        """
        key = self._key(model)
        if (prepared := self._models.get(key)) is not None:
            _check_idle(prepared)
        await asyncio.wrap_future(self.worker.run_exclusive(lambda: self._drop(key)))

    def close(self) -> None:
        """Stop all training calls and the worker; calls that have ended are on disk."""
        self.jobs.stop()
        self.worker.close()

    def names(self) -> list[str]:
        """All names, including those of models that are on disk only."""
        own = {name: model.key for name, model in list(self._by_name.items())}
        listed = list(self._base_names)
        for name, key in ({key.name: key for key in self._store.saved()} | own).items():
            listed += [name, *(version(name, step) for step in self._store.checkpoints(key).numbers())]
        return list(dict.fromkeys(listed))

    def knows(self, name: str) -> bool:
        reference = parse(name)
        if (model := self._named(reference)) is not None:
            return reference.step is None or model.has(reference.step)
        return name in self._base_names or self._stored(reference) is not None

    def engine(self, name: str) -> Engine:
        reference = parse(name)
        if (model := self._named(reference)) is not None:
            if reference.step is None or reference.step == model.step:
                return model.engine
            return self._old_engine(model.key, model.checkpoints, reference.step)
        if not name or name in self._base_names:
            return self._engine
        stored = self._stored(reference)
        if stored is None:
            raise ModelNotServed(f"model {name!r} is not served here", hint="GET /v1/models lists all names")
        return self._old_engine(*stored)

    def trained(self) -> list[Engine]:
        return [model.engine for model in list(self._models.values())]

    def _key(self, model: ArtModel) -> ModelKey:
        key = key_of(model)
        if key.name == self._options.name:
            raise NameRefused(f"name {key.name!r} is that of the base model; choose another one")
        return key

    def _serve(self, model: PreparedModel) -> None:
        other = self._by_name.get(model.key.name)
        if other is not None and other is not model:
            logger.warning("%s is now the model of %s, no longer of %s", model.key.name, model.key, other.key)
        self._models[model.key] = self._by_name[model.key.name] = model

    def _make(self, key: ModelKey, requested: InternalModelConfig) -> PreparedModel:
        """Make or restore a model on the model thread and serve it, unless another client just did."""
        if (prepared := self._models.get(key)) is not None:
            return prepared
        if len(self._models) >= self._options.max_models:
            raise TooManyModels(
                f"this server holds {self._options.max_models} models for training, so there is no room for {key}",
                hint="start it with a higher --max_models, or delete a model",
            )
        for note in notes_on(requested, limit=self.base.max_seq_length):
            logger.warning("%s: %s", key, note)
        checkpoints = self._store.checkpoints(key)
        found = checkpoints.open()
        peft, adapters = requested.peft_args or PeftArgs(), self._adapters
        lora = LoraSettings(peft.r or self._options.lora_rank, peft.lora_alpha or self._options.lora_alpha)
        adapter = adapters.create(lora, seed=self._options.seed) if found is None else adapters.load(found.path)
        try:
            learner = self.new_learner(adapter.loaded)
            if found is None:
                checkpoints.save(adapter.loaded, learner, None, number=0)
            else:
                resume(found, adapter.loaded, learner)
        except BaseException:
            adapters.remove(adapter)
            raise
        if adapter.settings != lora:
            logger.warning("%s keeps the adapter of its checkpoint, %s; requested was %s", key, adapter.settings, lora)
        if found is not None and found.state.job is not None:
            self.jobs.add_ended(found.state.job.state)
        step = 0 if found is None else found.number
        logger.info("%s is served from step %d on", key, step)
        engine = self.new_engine(adapter, version(key.name, step))
        prepared = PreparedModel(key, adapter, learner, engine, checkpoints, step)
        self._serve(prepared)
        return prepared

    def _drop(self, key: ModelKey) -> None:
        """Stop answering to a model's names, free its weights and delete its files, while nothing runs."""
        remove_folder(self._store.folder(key))
        self.forget_folders(self._store.folder(key))
        if (model := self._models.pop(key, None)) is not None:  # it may be gone by another request
            self._adapters.remove(model.adapter)
            if self._by_name[key.name] is model:
                del self._by_name[key.name]

    def _named(self, reference: ModelReference) -> PreparedModel | None:
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
        """The engine of a checkpoint's weights."""
        checkpoint = checkpoints.find(step)
        if checkpoint is None:
            raise ModelNotServed(
                f"{key} has no checkpoint of step {step} (any more)", hint="GET /v1/models lists all names"
            )
        return self.kept_engine(checkpoint.path, version(key.name, step))


def notes_on(requested: InternalModelConfig, *, limit: int) -> list[str]:
    """What has no effect on a server of one model of `limit` tokens, such as shares of a GPU; in whole sentences."""
    longest, blocks = requested.max_seq_length, requested.model_dump(exclude_none=True, include=set(_KNOWN))
    notes = []
    if longest is not None and longest > limit:
        notes.append(f"init_args.max_seq_length is {longest}; this model has {limit} tokens.")
    names = [
        f"{block}.{name}" for block, known in _KNOWN.items() for name in blocks.get(block, {}) if name not in known
    ]
    if names:
        notes.append(f"These have no effect on this server: {excerpt(', '.join(names), 1000)}.")
    return notes


def _check_idle(model: PreparedModel) -> None:
    if model.busy:
        raise ModelBusy(f"{model.key} is being trained", hint="wait for the end of that training call")

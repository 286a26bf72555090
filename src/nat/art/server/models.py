"""The models that ART's clients registered: adapters on one base model, trained in turn, served side by side.

A model's step is the number of its training calls, and each has a checkpoint. A client that prepares the model again,
even after a restart, goes on from the newest one.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

from nat.art.options import MAX_MODELS
from nat.art.server.batch import ArtBatch
from nat.art.server.model_factory import ModelFactory, notes_on
from nat.art.server.pool import ModelPool, PreparedModel
from nat.art.server.store import ModelKey, Store, key_of
from nat.art.server.training_call import TrainingCall
from nat.art.wire import ArtModel, Serving
from nat.backend.inference.engine import EngineLimits
from nat.backend.inference.worker import Worker
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.model import LoadedModel
from nat.backend.training.jobs import JobTable
from nat.errors import ModelBusy, ModelNotPrepared, NameRefused
from nat.wire.training import JobState

logger = logging.getLogger(__name__)


class ArtModels:
    """The real `Models`, for the event loop."""

    def __init__(
        self,
        base: LoadedModel,
        *,
        name: str,
        output_dir: Path,
        lora: LoraSettings,
        seed: int = 0,
        limits: EngineLimits = EngineLimits(),  # noqa: B008 - frozen
        max_models: int = MAX_MODELS,
        free_threads: Callable[[], int] | None = None,
    ) -> None:
        """Serve a base model that has no adapter yet; `lora` is for clients that request no adapter of their own."""
        self.jobs = JobTable()
        self._adapters = Adapters(base)
        self._store = Store(output_dir)
        self._pool = ModelPool(self._adapters, self._store, name=name, limits=limits)
        self._factory = ModelFactory(self._pool, self._adapters, self._store, self.jobs, lora, seed, max_models)
        self.worker = Worker(self._pool.base, self._pool, free_threads=free_threads)

    @property
    def base(self) -> LoadedModel:
        """The model that all of them are trained on."""
        return self._adapters.base

    def register(self, model: ArtModel) -> None:
        """Let the base model answer to the name that the client has for it; may be repeated."""
        key = self._key(model)
        served = self._pool.base.policy_version
        if model.trainable and model.base_model is not None and not self._pool.knows(model.base_model):
            if model.base_model.rpartition("/")[2] != served:
                logger.warning("%s requests the base model %s; here it is %s", key, model.base_model, served)
            self._pool.name_base(model.base_model)

    async def prepare(self, model: ArtModel) -> None:
        """Make a model's weights, or restore them, and serve them; does nothing for a model that is not trainable.

        Raises:
            BackendError: its newest checkpoint cannot be restored.
            ModelNotSupported: the requested adapter is too large for the base model.
            TooManyModels: there is no room for one more.

        """
        key = self._key(model)
        self.register(model)
        if not model.trainable:
            return
        prepared = self._pool.find(key)
        if prepared is None:
            make = self._factory.make
            prepared = await asyncio.wrap_future(self.worker.run_between(lambda: make(key, model.internal_config)))
        self._pool.serve(prepared, entity=model.entity)

    def serving(self, model: ArtModel) -> Serving:
        """The base model, and which requested settings have no effect here."""
        notes = notes_on(model.internal_config, limit=self.base.max_seq_length)
        return Serving(base_model=self._pool.base.policy_version, notes=notes)

    def step(self, model: ArtModel) -> int:
        """Training calls so far, by the served weights or else by the newest checkpoint on disk; 0 if there is none."""
        key = self._key(model)
        prepared = self._pool.find(key)
        if prepared is not None:
            return prepared.step
        newest = self._store.checkpoints(key).newest()
        return 0 if newest is None else newest.number

    def steps(self, model: ArtModel) -> list[int]:
        """All checkpoints on disk, oldest first."""
        return self._store.checkpoints(self._key(model)).numbers()

    def folder(self, model: ArtModel) -> Path:
        """Where the checkpoints and the history are."""
        return self._store.folder(self._key(model))

    def train(self, model: ArtModel, batch: ArtBatch) -> TrainingCall:
        """Begin a training call.

        Raises:
            ModelBusy: one runs or waits already.
            ModelNotPrepared: there are no weights to train.

        """
        key = self._key(model)
        prepared = self._pool.find(key)
        if prepared is None:
            raise ModelNotPrepared(
                f"{key} has no weights to train", hint="POST /_prepare_backend_for_training first, as register() does"
            )
        _check_idle(prepared)
        job = prepared.job = self.jobs.add(uuid.uuid4().hex)
        call = TrainingCall(job, batch)

        def update() -> None:
            self._pool.release()
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
        if (prepared := self._pool.find(key)) is not None:
            _check_idle(prepared)
        await asyncio.wrap_future(self.worker.run_exclusive(lambda: self._pool.drop(key)))

    def close(self) -> None:
        """Stop all training calls and the worker; calls that have ended are on disk."""
        self.jobs.stop()
        self.worker.close()

    def _key(self, model: ArtModel) -> ModelKey:
        key = key_of(model)
        if key.name == self._pool.base.policy_version:
            raise NameRefused(f"name {key.name!r} is that of the base model; choose another one")
        return key


def _check_idle(model: PreparedModel) -> None:
    if model.busy:
        raise ModelBusy(f"{model.key} is being trained", hint="wait for the end of that training call")

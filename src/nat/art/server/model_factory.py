"""Makes a client's model, or restores it from its newest checkpoint. Runs on the model thread."""

import logging
from dataclasses import dataclass

from nat.art.server.model_config import longest_row, lora_of, without_effect
from nat.art.server.names import ModelKey, version
from nat.art.server.pool import ModelPool
from nat.art.server.prepared import PreparedModel
from nat.art.server.store import Store
from nat.art.wire import InternalModelConfig
from nat.backend.adapters import Adapters
from nat.backend.model import LoraSettings
from nat.backend.training.checkpoints import resume
from nat.backend.training.job import JobTable
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import TooManyModels

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelFactory:
    """What it takes to make a model; `lora` is for clients that do not say what they want."""

    pool: ModelPool
    adapters: Adapters
    store: Store
    jobs: JobTable
    lora: LoraSettings
    seed: int
    max_models: int

    def make(self, key: ModelKey, requested: InternalModelConfig | None) -> PreparedModel:
        """Make or restore a model and serve it, unless someone else just did.

        Raises:
            BackendError: its checkpoints are damaged, or do not fit.
            ModelNotSupported: the adapter that is wished for is too large for the base model.
            TooManyModels: there is no room for one more.

        """
        if (prepared := self.pool.find(key)) is not None:
            return prepared
        if self.pool.num_models >= self.max_models:
            raise TooManyModels(
                f"this server holds {self.max_models} models for training, so there is no room for {key}",
                hint="start it with a higher --max_models, or delete a model",
            )
        self._tell_what_is_other(key, requested)
        checkpoints = self.store.checkpoints(key)
        found = checkpoints.open()
        lora = lora_of(requested, self.lora)
        adapter = self.adapters.create(lora, seed=self.seed) if found is None else self.adapters.load(found.path)
        try:
            learner = Learner(adapter.loaded, Reference(adapter.loaded, lambda: adapter.loaded.model))
            if found is None:
                checkpoints.save(adapter.loaded, learner, [], number=0)
            else:
                resume(found, learner)
        except BaseException:
            self.adapters.remove(adapter)
            raise
        if adapter.settings != lora:
            logger.warning("%s keeps the adapter of its checkpoint, %s; wanted was %s", key, adapter.settings, lora)
        for state in () if found is None else found.state.jobs:
            self.jobs.know(state)
        step = 0 if found is None else found.number
        logger.info("%s is served from step %d on", key, step)
        engine = self.pool.new_engine(adapter, version(key.name, step))
        prepared = PreparedModel(key, adapter, learner, engine, checkpoints, step)
        self.pool.serve(prepared)
        return prepared

    def _tell_what_is_other(self, key: ModelKey, requested: InternalModelConfig | None) -> None:
        wanted, limit = longest_row(requested), self.adapters.base.max_seq_length
        if wanted is not None and wanted > limit:
            logger.warning("%s wants max_seq_length %d; this model has %d tokens", key, wanted, limit)
        if ignored := without_effect(requested):
            logger.warning("%s: these have no effect on this server: %s", key, ", ".join(ignored))

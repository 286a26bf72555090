"""Makes a client's model as the client requests it, or restores it from its newest checkpoint."""

import logging
from dataclasses import dataclass

from nat.art.server.pool import ModelPool, PreparedModel
from nat.art.server.store import ModelKey, Store, version
from nat.art.wire import InternalModelConfig
from nat.backend.lora import Adapters, LoraSettings
from nat.backend.training.checkpoints import resume
from nat.backend.training.jobs import JobTable
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import TooManyModels
from nat.secrets import excerpt

logger = logging.getLogger(__name__)

_NAMES_CHARS = 1000
_KNOWN = {
    "init_args": {"max_seq_length"},
    "engine_args": set[str](),
    "peft_args": {"r", "lora_alpha"},
    "torchtune_args": set[str](),
}
"""The settings of each block that have an effect here; those of `trainer_args` all do."""


@dataclass(frozen=True)
class ModelFactory:
    """Works on the model thread; `lora` is for clients that request no adapter of their own."""

    pool: ModelPool
    adapters: Adapters
    store: Store
    jobs: JobTable
    lora: LoraSettings
    seed: int
    max_models: int

    def make(self, key: ModelKey, requested: InternalModelConfig) -> PreparedModel:
        """Make or restore a model and serve it, unless another client just did.

        Raises:
            BackendError: its checkpoints are damaged, or do not fit.
            ModelNotSupported: the requested adapter is too large for the base model.
            TooManyModels: there is no room for one more.

        """
        if (prepared := self.pool.find(key)) is not None:
            return prepared
        if self.pool.num_models >= self.max_models:
            raise TooManyModels(
                f"this server holds {self.max_models} models for training, so there is no room for {key}",
                hint="start it with a higher --max_models, or delete a model",
            )
        for note in notes_on(requested, limit=self.adapters.base.max_seq_length):
            logger.warning("%s: %s", key, note)
        checkpoints = self.store.checkpoints(key)
        found = checkpoints.open()
        lora = lora_of(requested, self.lora)
        adapter = self.adapters.create(lora, seed=self.seed) if found is None else self.adapters.load(found.path)
        try:
            learner = Learner(adapter.loaded, Reference(adapter.loaded, lambda: adapter.loaded.model))
            if found is None:
                checkpoints.save(adapter.loaded, learner, [], number=0)
            else:
                resume(found, adapter.loaded, learner)
        except BaseException:
            self.adapters.remove(adapter)
            raise
        if adapter.settings != lora:
            logger.warning("%s keeps the adapter of its checkpoint, %s; requested was %s", key, adapter.settings, lora)
        for state in () if found is None else found.state.jobs:
            self.jobs.add_ended(state)
        step = 0 if found is None else found.number
        logger.info("%s is served from step %d on", key, step)
        engine = self.pool.new_engine(adapter, version(key.name, step))
        prepared = PreparedModel(key, adapter, learner, engine, checkpoints, step)
        self.pool.serve(prepared)
        return prepared


def lora_of(requested: InternalModelConfig, default: LoraSettings) -> LoraSettings:
    """The requested adapter; what the client leaves open is as the server was started."""
    peft = requested.peft_args
    if peft is None:
        return default
    return LoraSettings(rank=peft.r or default.rank, alpha=peft.lora_alpha or default.alpha)


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
        notes.append(f"These have no effect on this server: {excerpt(', '.join(names), _NAMES_CHARS)}.")
    return notes

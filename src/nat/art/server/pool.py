"""Which engine answers to which name: the base, each model's newest weights, and a few old ones.

Old weights are read from their checkpoint when someone asks for them, and so is a model that nobody has prepared since
the server was started: what was trained can be used without the client that trained it.
"""

import logging
from collections import OrderedDict
from typing import NamedTuple

from nat.art.server.names import ModelKey, Wanted, artifact, parse, version
from nat.art.server.prepared import PreparedModel
from nat.art.server.store import Store
from nat.backend.adapters import Adapter, Adapters
from nat.backend.checkpoint_folder import verify
from nat.backend.inference.engine import Engine, Limits
from nat.backend.training.checkpoints import Checkpoints
from nat.errors import ModelNotServed

logger = logging.getLogger(__name__)
MAX_BASE_NAMES = 100
"""By which clients call the base; the oldest of them go."""
MAX_OLD = 2
"""Old weights that stay loaded although nobody asks for them at the moment."""


class _Old(NamedTuple):
    adapter: Adapter
    engine: Engine


class ModelPool:
    """The weights on one base model. Names may be asked for by any thread, engines only by the model thread."""

    def __init__(self, adapters: Adapters, store: Store, *, name: str, limits: Limits) -> None:
        self._adapters = adapters
        self._store = store
        self._limits = limits
        self.base = self.new_engine(None, name)
        self._base_names = {name: None}
        self._models: dict[ModelKey, PreparedModel] = {}
        self._by_name: dict[str, PreparedModel] = {}
        self._entities: dict[ModelKey, str] = {}
        self._old: OrderedDict[tuple[ModelKey, int], _Old] = OrderedDict()

    def new_engine(self, adapter: Adapter | None, policy_version: str) -> Engine:
        """Make an engine that puts this adapter in place before it computes."""
        return Engine(
            self._adapters.base,
            policy_version=policy_version,
            limits=self._limits,
            activate=lambda: self._adapters.activate(adapter),
        )

    def call_base(self, name: str) -> None:
        """Let the base answer to one more name, as long as no model has it."""
        self._base_names[name] = None
        if len(self._base_names) > MAX_BASE_NAMES:
            del self._base_names[list(self._base_names)[1]]  # the first one is the server's own

    def serve(self, model: PreparedModel, *, entity: str | None = None) -> None:
        """Let a model answer to its names; the plain one means the model that was served last."""
        other = self._by_name.get(model.key.name)
        if other is not None and other is not model:
            logger.warning("%s is now the model of %s, no longer of %s", model.key.name, model.key, other.key)
        if entity is not None:
            self._entities[model.key] = entity
        self._models[model.key] = self._by_name[model.key.name] = model

    def drop(self, model: PreparedModel) -> None:
        """Answer to a model's names no longer, and free its weights, while nothing runs."""
        del self._models[model.key]
        self._entities.pop(model.key, None)
        if self._by_name[model.key.name] is model:
            del self._by_name[model.key.name]
        for place in [place for place in self._old if place[0] == model.key]:
            self._adapters.remove(self._old.pop(place).adapter)
        self._adapters.remove(model.adapter)

    def release(self) -> None:
        """Give all caches' memory to an update, while nothing runs."""
        for engine in self.engines():
            engine.release()

    @property
    def num_models(self) -> int:
        """Models whose weights are in memory to be trained."""
        return len(self._models)

    def find(self, key: ModelKey) -> PreparedModel | None:
        return self._models.get(key)

    def names(self) -> list[str]:
        """All names, those of models that are on disk only included."""
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
        wanted = parse(name)
        model = self._model(wanted)
        if model is not None:
            return wanted.step is None or model.has(wanted.step)
        return name in self._base_names or self._stored(wanted) is not None

    def engine(self, name: str) -> Engine:
        wanted = parse(name)
        model = self._model(wanted)
        if model is not None:
            if wanted.step is None or wanted.step == model.step:
                return model.engine
            return self._old_engine(model.key, model.checkpoints, wanted.step)
        if not name or name in self._base_names:
            return self.base
        stored = self._stored(wanted)
        if stored is None:
            raise ModelNotServed(f"model {name!r} is not served here", hint="GET /v1/models lists all names")
        return self._old_engine(*stored)

    def engines(self) -> list[Engine]:
        return [
            self.base,
            *(model.engine for model in self._models.values()),
            *(old.engine for old in self._old.values()),
        ]

    def _model(self, wanted: Wanted) -> PreparedModel | None:
        if wanted.project is None:
            return self._by_name.get(wanted.name)
        return self._models.get(ModelKey(wanted.project, wanted.name))

    def _stored(self, wanted: Wanted) -> tuple[ModelKey, Checkpoints, int] | None:
        """A model on disk that nobody has prepared, and the step that is wanted of it."""
        known = [item for item in self._store.saved(wanted.name).items() if wanted.project in {None, item[0].project}]
        if not known:
            return None
        key, newest = known[-1]
        checkpoints = self._store.checkpoints(key)
        found = newest if wanted.step is None else checkpoints.find(wanted.step)
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
            self._old[place] = _Old(adapter, self.new_engine(adapter, version(key.name, step)))
        self._old.move_to_end(place)
        return self._old[place].engine

    def _forget(self, *, keep: int) -> None:
        """Drop the least recently used of the old weights that nobody waits for."""
        idle = [place for place, old in self._old.items() if not old.engine.requests]
        for place in idle[: max(0, len(self._old) - keep)]:
            self._adapters.remove(self._old.pop(place).adapter)

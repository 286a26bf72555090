"""Many adapters on one base model: their engines, and weights that are read from folders when a request names them.

A folder may also have a whole model, which then takes memory of its own.

A protocol gives them names, with a subclass of `Models`. Clients' requests call it on the event loop; engines and
adapters belong to the model thread.
"""

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from nat.backend.checkpoint_folder import check_weights
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.worker import EnginePool, Worker
from nat.backend.lora import Adapter, Adapters
from nat.backend.model import LoadedModel
from nat.backend.path_checks import load_checked_model
from nat.backend.tokenizer import ChatOptions
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.model_folder import is_adapter
from nat.wire.serving import AdapterServeOptions, ServeOptions

MAX_KEPT = 2
"""Weights from folders that stay loaded although no request uses them; of whole models one."""


class _Kept(NamedTuple):
    adapter: Adapter | None
    """None for a whole model."""
    engine: Engine


class Models(EnginePool):
    """The base's engine and those of adapters; a subclass knows the trained ones, and starts the worker."""

    worker: Worker
    """Set by the subclass, once it can tell its engines."""

    def __init__(self, base: LoadedModel, options: AdapterServeOptions) -> None:
        """Serve a base model that has no adapter yet."""
        self.base = base
        """The model that all of them are trained on: its tokenizer and limits."""
        self._served = options
        self._limits = EngineLimits.of(options.max_num_seqs, options.prefix_cache_mb, options.kv_cache_mb, base.device)
        self._adapters = Adapters(base)
        self._kept: OrderedDict[Path, _Kept] = OrderedDict()
        super().__init__(self.new_engine(None, options.name))

    def trained(self) -> Iterable[Engine]:
        """The engines of the weights that are being trained, if requests use them; other threads look, too."""
        return ()

    def engines(self) -> list[Engine]:
        return [self._engine, *self.trained(), *(kept.engine for kept in list(self._kept.values()))]

    def new_engine(self, adapter: Adapter | None, policy_version: str) -> Engine:
        """Make an engine that activates this adapter before it computes."""
        activate = self._adapters.activate
        return Engine(self.base, policy_version=policy_version, limits=self._limits, activate=lambda: activate(adapter))

    def whole_model(self, folder: Path) -> LoadedModel:
        """Load another model like the base, with layers of its own."""
        return load_base(self._served.model_copy(update={"model": folder}))

    def kept_engine(self, folder: Path, policy_version: str) -> Engine:
        """The engine of a folder's weights; the least recently used that no request waits for are dropped.

        Raises:
            BackendError: they cannot be read.
            CheckpointDamaged: a file is not as it was written.

        """
        idle = [place for place, kept in self._kept.items() if not kept.engine.requests]
        for unused in idle[: max(0, len(self._kept) - MAX_KEPT + (folder not in self._kept))]:
            self._forget(unused)
        if folder not in self._kept:
            check_weights(folder)
            self._kept[folder] = self._read(folder, policy_version)
        self._kept.move_to_end(folder)
        return self._kept[folder].engine

    def forget_folders(self, below: Path) -> None:
        """Drop the weights that were loaded from there, while nothing runs."""
        for place in [place for place in self._kept if place.is_relative_to(below)]:
            self._forget(place)

    def _read(self, folder: Path, policy_version: str) -> _Kept:
        if is_adapter(folder):
            adapter = self._adapters.load(folder)
            return _Kept(adapter, self.new_engine(adapter, policy_version))
        for unused in [
            place for place, kept in self._kept.items() if kept.adapter is None and not kept.engine.requests
        ]:
            self._forget(unused)
        loaded = self.whole_model(folder)
        return _Kept(None, Engine(loaded, policy_version=policy_version, limits=self._limits))

    def _forget(self, folder: Path) -> None:
        if (adapter := self._kept.pop(folder).adapter) is not None:
            self._adapters.remove(adapter)

    def new_learner(self, loaded: LoadedModel) -> Learner:
        """Train this adapter, or all weights of a model; the base alone is the reference of an adapter's KL terms."""
        return Learner(loaded, Reference(loaded, lambda: loaded.model))


def load_base(options: ServeOptions) -> LoadedModel:
    """Load the base model with checked paths."""
    return load_checked_model(
        options.model,
        dtype=options.dtype,
        device=options.device,
        load_in_4bit=options.load_in_4bit,
        max_seq_length=options.max_seq_length,
        chats=ChatOptions(options.chat_template_kwargs, options.response_template, options.sanitize_control_tokens),
    )

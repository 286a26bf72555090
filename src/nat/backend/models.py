"""Many adapters on one base model: their engines, and weights that are read from folders when a request names them.

A protocol gives them names, with a subclass of `Models`. Clients' requests call it on the event loop; engines and
adapters belong to the model thread.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from nat.backend.checkpoint_folder import check_weights
from nat.backend.cores import FreeCores
from nat.backend.ended_thread import in_ended_thread
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.worker import EnginePool, Worker
from nat.backend.lora import Adapter, Adapters
from nat.backend.model import LoadedModel
from nat.backend.path_checks import load_checked_model
from nat.backend.tokenizer import ChatOptions
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.serving import AdapterServeOptions, ServeOptions

MAX_KEPT = 2
"""Weights from folders that stay loaded although no request uses them."""


class _Kept(NamedTuple):
    adapter: Adapter
    engine: Engine


class Models(EnginePool):
    """The base's engine and those of adapters; a subclass knows the trained ones, and starts the worker."""

    worker: Worker
    """Set by the subclass, once it can tell its engines."""

    def __init__(self, base: LoadedModel, options: AdapterServeOptions) -> None:
        """Serve a base model that has no adapter yet."""
        self.base = base
        """The model that all of them are trained on: its tokenizer and limits."""
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

    def kept_engine(self, folder: Path, policy_version: str) -> Engine:
        """The engine of a folder's adapter; the least recently used that no request waits for are dropped.

        Raises:
            BackendError: the adapter cannot be read.
            CheckpointDamaged: a file is not as it was written.

        """
        idle = [place for place, kept in self._kept.items() if not kept.engine.requests]
        for unused in idle[: max(0, len(self._kept) - MAX_KEPT + (folder not in self._kept))]:
            self._adapters.remove(self._kept.pop(unused).adapter)
        if folder not in self._kept:
            check_weights(folder)
            adapter = self._adapters.load(folder)
            self._kept[folder] = _Kept(adapter, self.new_engine(adapter, policy_version))
        self._kept.move_to_end(folder)
        return self._kept[folder].engine

    def forget_folders(self, below: Path) -> None:
        """Drop the weights that were loaded from there, while nothing runs."""
        for place in [place for place in self._kept if place.is_relative_to(below)]:
            self._adapters.remove(self._kept.pop(place).adapter)

    def new_learner(self, adapter: Adapter) -> Learner:
        """Train this adapter; the base alone is the reference of KL terms."""
        return Learner(adapter.loaded, Reference(adapter.loaded, lambda: adapter.loaded.model))


def load_base(options: ServeOptions) -> LoadedModel:
    """Load the base model with checked paths, in a thread that has ended."""
    return in_ended_thread(
        partial(
            load_checked_model,
            options.model,
            dtype=options.dtype,
            device=options.device,
            load_in_4bit=options.load_in_4bit,
            max_seq_length=options.max_seq_length,
            chats=ChatOptions(options.chat_template_kwargs, options.response_template),
        )
    )


def free_threads(options: ServeOptions) -> Callable[[], int]:
    """Gives the number of threads to compute with, for now."""
    return FreeCores(torch.get_num_threads(), fixed=options.threads is not None).threads

"""Open a backend whose model is on a Tinker server: templates, tokens, rows, jobs and checkpoints are here."""

import io
import json
import logging
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import torch
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS, CheckpointState, write_manifest
from nat.backend.export import export_folder
from nat.backend.forecast import Forecaster
from nat.backend.model import LoadedModel
from nat.backend.model_loader import context_limit, eos_token_ids, load_tokenizer
from nat.backend.packed_linear import PackedLinears
from nat.backend.protocol import Endpoint, Opened
from nat.backend.serve import opened, resumed
from nat.backend.server.training import training_router
from nat.backend.tokenizer import ChatOptions
from nat.backend.training.checkpoints import Checkpoints
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.learner import Learner
from nat.backend.training.ledger import JobLedger
from nat.backend.training.mismatch import Probe
from nat.errors import CheckpointDamaged, describe_error
from nat.files import remove_unfinished, replacing_folder
from nat.sandbox.process import Sandbox
from nat.tinker.options import TinkerRemoteOptions
from nat.tinker.remote.engine import RemoteEngine
from nat.tinker.remote.learner import RemoteLearner, RemoteModel
from nat.tinker.remote.service import Adapter, Service, connect
from nat.wire.ledger import LEDGER
from nat.wire.model_folder import ADAPTER_CONFIG, REMOTE_WEIGHTS, STATE
from nat.wire.serving import CHECKPOINTS, EXPORTS
from nat.wire.training import JobState

logger = logging.getLogger(__name__)

_NO_ADAPTER = (
    *(tarfile.TarError, zlib.error, OSError, EOFError),
    *(LookupError, TypeError, ValueError, SafetensorError),
)
_LARGEST = 2**33
"""Bytes of a file of an archive."""
_MODULE = re.compile(r"\.([^.]+)\.lora_[AB]\.")


class _Place(BaseModel):
    """Where trained weights are: their path on the server, and the folder here that has their tokenizer."""

    state: str
    model: Path


class RemoteCheckpoints(Checkpoints):
    """Checkpoints whose weights are on the server, and here, too, if it gives an archive of them.

    The server keeps the states that a checkpoint or an export in the run's folder names.
    """

    def __init__(self, folder: Path, adapter: Adapter, *, keep_last: int | None) -> None:
        super().__init__(folder, keep_last=keep_last)
        self._adapter = adapter

    def save(self, loaded: LoadedModel, learner: Learner, jobs: list[JobState], *, number: int | None = None) -> Path:
        target = super().save(loaded, learner, jobs, number=number)
        with suppress(CheckpointDamaged):  # then nobody knows what it names
            self._adapter.keep_only({_place(path.parent).state for path in self.folder.parent.rglob(REMOTE_WEIGHTS)})
        return target

    def delete(self, numbers: Iterable[int]) -> None:
        for number in (gone := list(numbers)):
            with suppress(CheckpointDamaged):
                self._adapter.saved.add(_place(self.folder / self._layout.name(number)).state)
        super().delete(gone)

    def _write(self, target: Path, loaded: LoadedModel, learner: Learner, jobs: list[JobState]) -> None:
        with replacing_folder(target) as folder:
            _write_weights(folder, loaded, learner)
            state = CheckpointState(step=learner.step, first_step=learner.first_step, lora=True, jobs=jobs)
            (folder / STATE).write_text(state.model_dump_json(indent=1))
            write_manifest(folder, "checkpoint")


class RemoteJobs(TrainingJobs):
    """Jobs whose model is exported like a checkpoint."""

    def _export(self, target: Path) -> Path:
        with export_folder(target) as folder:
            _write_weights(folder, self.loaded, self.learner)
        return target


@contextmanager
def open_remote(options: TinkerRemoteOptions, _: Endpoint, *, connected: Service | None = None) -> Iterator[Opened]:
    """Connect to the server; begin a new adapter there, or reopen that of the newest checkpoint."""
    adapter = Adapter(connected or connect(options), rank=options.lora_rank, seed=options.seed)
    start = _place(options.model) if (options.model / REMOTE_WEIGHTS).is_file() else None
    loaded = _without_weights(options, options.model if start is None else start.model)
    probe = Probe(lambda model, rows: [engine.score(model, rows)])  # there is no engine yet
    learner, found = RemoteLearner(loaded, adapter, probe), None
    if options.output_dir is not None:
        checkpoints = RemoteCheckpoints(options.output_dir / CHECKPOINTS, adapter, keep_last=options.keep_last)
        found = resumed(checkpoints, options)
        remove_unfinished(options.output_dir / EXPORTS)
    if found is not None:
        adapter.resume(_place(found.path).state)
        learner.step, learner.first_step = found.state.step, found.state.first_step
    elif start is not None or options.output_dir is not None:
        adapter.begin(None if start is None else start.state)
    newest = adapter.sampler if adapter.state else adapter.service.base
    engine = RemoteEngine(loaded, f"{options.name}@{learner.step}", newest, at_a_time=options.max_num_seqs)
    if options.output_dir is None:
        with closing(engine):
            yield Opened(engine, [training_router(None, Forecaster(options, engine, learner))])
        return
    known = found.state.jobs if found is not None else ()
    ledger = JobLedger(checkpoints.folder / LEDGER, step=learner.step, jobs=known)
    folder, every = options.output_dir, options.save_every
    with closing(RemoteJobs(engine, learner, checkpoints, ledger, output_dir=folder, save_every=every)) as jobs:
        yield opened(options, engine, jobs)


def _write_weights(folder: Path, loaded: LoadedModel, learner: Learner) -> None:
    """Write where they are, and the adapter in PEFT's format, if the server gives an archive of it."""
    assert isinstance(learner, RemoteLearner), "the learner of this backend"
    place = _Place(state=learner.adapter.state, model=loaded.path.resolve())
    (folder / REMOTE_WEIGHTS).write_text(place.model_dump_json())
    if (archive := learner.adapter.archive()) is None:
        return
    try:
        files = _adapter_files(archive, place.model)
    except _NO_ADAPTER as error:
        logger.warning("the archive of %s is no adapter in PEFT's format: %s", place.state, describe_error(error))
        return
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _adapter_files(archive: bytes, base: Path) -> dict[str, bytes]:
    """Weights and configuration. SkyRL's lacks the modules, and PEFT would then load some of them in silence."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        members = {Path(each.name).name: each for each in files if each.isfile() and each.size <= _LARGEST}
        read = (files.extractfile(members[name]) for name in (ADAPTER_WEIGHTS, ADAPTER_CONFIG))
        weights, config = (file.read() for file in read if file is not None)
    modules = {match[1] for name in load(weights) if (match := _MODULE.search(name)) is not None}
    known = {"base_model_name_or_path": str(base), "target_modules": sorted(modules)}
    return {ADAPTER_WEIGHTS: weights, ADAPTER_CONFIG: json.dumps(json.loads(config) | known, indent=1).encode()}


def _place(folder: Path) -> _Place:
    try:
        return _Place.model_validate_json((folder / REMOTE_WEIGHTS).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointDamaged(folder, [f"{REMOTE_WEIGHTS} names no state of a Tinker server: {error}"]) from error


def _without_weights(options: TinkerRemoteOptions, path: Path) -> RemoteModel:
    """The folder's tokenizer and sizes."""
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    sandbox = Sandbox()
    sandbox.start()
    tokenizer = load_tokenizer(path, sandbox, ChatOptions(options.chat_template_kwargs, options.response_template))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    if (path / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    limit, ends = context_limit(config, options.max_seq_length), eos_token_ids(model, tokenizer)
    return RemoteModel(model, tokenizer, path, limit, ends, None, (), PackedLinears(nn.Module()))

"""Open a backend whose model is on a Tinker server: templates, tokens, rows, jobs and checkpoints are here."""

import json
import logging
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS, CheckpointState, TrainedJob, write_manifest
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
from nat.backend.training.mismatch import Probe
from nat.errors import CheckpointDamaged, describe_error
from nat.files import UNFINISHED, remove_unfinished, replacing_folder
from nat.tinker.options import TinkerRemoteOptions
from nat.tinker.remote.engine import RemoteEngine
from nat.tinker.remote.learner import RemoteLearner, RemoteModel
from nat.tinker.remote.service import Service, Trained, connect
from nat.wire.model_folder import (
    ADAPTER_CONFIG,
    MODEL_CONFIG,
    REMOTE_WEIGHTS,
    STATE,
    WEIGHTS,
    WEIGHTS_INDEX,
    num_parameters,
)
from nat.wire.serving import CHECKPOINTS, EXPORTS

logger = logging.getLogger(__name__)

_NO_WEIGHTS = (
    *(tarfile.TarError, zlib.error, OSError, EOFError),
    *(LookupError, TypeError, ValueError, SafetensorError),
)
_LARGEST_ADAPTER = 2**33
"""Bytes of an archive, and of the files that are taken out of it."""
_WIDEST = 8
"""The same for each weight of a whole model, which may be in float32 and have its output layer twice."""
_ADAPTER = re.compile(f"{re.escape(ADAPTER_WEIGHTS)}|{re.escape(ADAPTER_CONFIG)}")
_MODEL = re.compile(
    rf"(generation_)?{re.escape(MODEL_CONFIG)}|{re.escape(WEIGHTS)}|{re.escape(WEIGHTS_INDEX)}"
    r"|model-\d{5,6}-of-\d{5,6}\.safetensors"
)
_MODULE = re.compile(r"\.([^.]+)\.lora_[AB]\.")


class _Place(BaseModel):
    """Where trained weights are: their path on the server, and the folder here that has their tokenizer."""

    state: str
    model: Path


class RemoteCheckpoints(Checkpoints):
    """Checkpoints whose weights are on the server, and here, too, if it gives an archive of them.

    The server keeps the states that a checkpoint or an export in the run's folder names.
    """

    def __init__(self, folder: Path, trained: Trained, *, keep_last: int | None) -> None:
        super().__init__(folder, keep_last=keep_last)
        self._trained = trained

    def save(self, loaded: LoadedModel, learner: Learner, job: TrainedJob | None, *, number: int | None = None) -> Path:
        target = super().save(loaded, learner, job, number=number)
        with suppress(CheckpointDamaged):  # then nobody knows what it names
            self._trained.keep_only({_place(path.parent).state for path in self.folder.parent.rglob(REMOTE_WEIGHTS)})
        return target

    def delete(self, numbers: Iterable[int]) -> None:
        for number in (gone := list(numbers)):
            with suppress(CheckpointDamaged):
                self._trained.saved.add(_place(self.folder / self._layout.name(number)).state)
        super().delete(gone)

    def _write(self, target: Path, loaded: LoadedModel, learner: Learner, job: TrainedJob | None) -> None:
        with replacing_folder(target) as folder:
            _write_weights(folder, loaded, learner)
            state = CheckpointState(
                step=learner.step, first_step=learner.first_step, lora=loaded.trains_adapter, job=job
            )
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
    """Connect to the server; begin with the base model there, or reopen the weights of the newest checkpoint."""
    trained = Trained(connected or connect(options), rank=options.lora_rank, seed=options.seed)
    with closing(trained):
        yield from _opened(options, trained)


def _opened(options: TinkerRemoteOptions, trained: Trained) -> Iterator[Opened]:
    start = _place(options.model) if (options.model / REMOTE_WEIGHTS).is_file() else None
    loaded = _without_weights(options, options.model if start is None else start.model)
    probe = Probe(lambda model, rows: [engine.score(model, rows)])  # there is no engine yet
    learner, found = RemoteLearner(loaded, trained, probe), None
    if options.output_dir is not None:
        checkpoints = RemoteCheckpoints(options.output_dir / CHECKPOINTS, trained, keep_last=options.keep_last)
        found = resumed(checkpoints, options)
        remove_unfinished(options.output_dir / EXPORTS)
    if found is not None:
        trained.resume(_place(found.path).state)
        learner.step, learner.first_step = found.state.step, found.state.first_step
    elif start is not None or options.output_dir is not None:
        trained.begin(None if start is None else start.state)
    newest = trained.sampler if trained.state else trained.service.base
    engine = RemoteEngine(loaded, f"{options.name}@{learner.step}", newest, at_a_time=options.max_num_seqs)
    trained.on_reopened = engine.renew
    if options.output_dir is None:
        with closing(engine):
            yield Opened(engine, [training_router(None, Forecaster(options, engine, learner))])
        return
    folder, every, last = options.output_dir, options.save_every, None if found is None else found.state.job
    with closing(RemoteJobs(engine, learner, checkpoints, output_dir=folder, save_every=every, last=last)) as jobs:
        yield opened(options, engine, jobs)


def _write_weights(folder: Path, loaded: LoadedModel, learner: Learner) -> None:
    """Write where they are; and the adapter in PEFT's format, or the model, if the server gives an archive of it."""
    assert isinstance(learner, RemoteLearner), "the learner of this backend"
    place = _Place(state=learner.trained.state, model=loaded.path.resolve())
    (folder / REMOTE_WEIGHTS).write_text(place.model_dump_json())
    lora, size = loaded.trains_adapter, loaded.model.num_parameters()
    most = _LARGEST_ADAPTER if lora else max(_LARGEST_ADAPTER, _WIDEST * size)
    with TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED) as draft:
        archive, files = Path(draft) / "archive.tar", Path(draft) / "files"
        if not learner.trained.download(archive):
            return
        files.mkdir()
        try:
            _unpack(archive, files, _ADAPTER if lora else _MODEL, most=most)
            if lora:
                _complete_adapter(files, place.model)
            else:
                _check_model(files, size)
        except _NO_WEIGHTS as error:
            kind = "adapter in PEFT's format" if lora else "model in Hugging Face's format"
            logger.warning("the archive of %s is no %s: %s", place.state, kind, describe_error(error))
            return
        for path in files.iterdir():
            path.rename(folder / path.name)
    if not lora:
        loaded.tokenizer.hf.save_pretrained(folder)


def _unpack(archive: Path, folder: Path, wanted: re.Pattern[str], *, most: int) -> None:
    """Write the files of these names, wherever in the archive they are; ValueError for more than `most` bytes."""
    left = most
    with tarfile.open(archive) as members:
        for member in members:
            name, file = Path(member.name).name, members.extractfile(member) if member.isfile() else None
            if file is None or wanted.fullmatch(name) is None:
                continue
            left -= member.size
            if left < 0:
                raise ValueError(f"its files have more than {most} bytes")
            with (folder / name).open("xb") as copy:
                shutil.copyfileobj(file, copy, 2**20)


def _complete_adapter(folder: Path, base: Path) -> None:
    """Name base and modules: SkyRL does not name these, and PEFT would then load some of them in silence."""
    with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as weights:
        modules = {match[1] for name in weights.keys() if (match := _MODULE.search(name)) is not None}  # noqa: SIM118 - no mapping
    known = {"base_model_name_or_path": str(base), "target_modules": sorted(modules)}
    config = json.loads((folder / ADAPTER_CONFIG).read_bytes()) | known
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1))


def _check_model(folder: Path, size: int) -> None:
    """Raise ValueError or another of `_NO_WEIGHTS` unless it has a configuration, and weights of this number."""
    json.loads((folder / MODEL_CONFIG).read_bytes())
    found = num_parameters(folder) or 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt"):  # it compares the header with the file's size
            pass
    if found < size:
        raise ValueError(f"it has {found} weights, and the model {size}")


def _place(folder: Path) -> _Place:
    try:
        return _Place.model_validate_json((folder / REMOTE_WEIGHTS).read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointDamaged(folder, [f"{REMOTE_WEIGHTS} names no state of a Tinker server: {error}"]) from error


def _without_weights(options: TinkerRemoteOptions, path: Path) -> RemoteModel:
    """The folder's tokenizer and sizes."""
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    tokenizer = load_tokenizer(path, ChatOptions(options.chat_template_kwargs, options.response_template))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    if (path / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    limit, ends = context_limit(config, options.max_seq_length), eos_token_ids(model, tokenizer)
    linears = PackedLinears(nn.Module())
    return RemoteModel(model, tokenizer, path, limit, ends, None, (), linears, rank=options.lora_rank)

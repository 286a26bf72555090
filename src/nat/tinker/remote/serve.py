"""Open a backend whose model is on a Tinker server: templates, tokens, rows, jobs and checkpoints are here."""

import json
import logging
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
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
from nat.backend.training.mismatch import Probe
from nat.errors import CheckpointDamaged, describe_error
from nat.files import UNFINISHED, remove_unfinished, replacing_folder
from nat.tinker.options import TinkerRemoteOptions
from nat.tinker.remote.engine import RemoteEngine
from nat.tinker.remote.learner import TinkerLearner
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


@contextmanager
def open_remote(options: TinkerRemoteOptions, _: Endpoint, *, connected: Service | None = None) -> Iterator[Opened]:
    """Connect to the server; begin with the base model there, or reopen the weights of the newest checkpoint."""
    trained = Trained(connected or connect(options), rank=options.lora_rank, seed=options.seed)
    with closing(trained):
        yield from _opened(options, trained)


def _opened(options: TinkerRemoteOptions, trained: Trained) -> Iterator[Opened]:
    start = _place(options.model) if (options.model / REMOTE_WEIGHTS).is_file() else None
    loaded = _without_weights(options, options.model if start is None else start.model)
    probe = Probe(lambda model, rows: engine.score(model, rows))  # noqa: PLW0108 - there is no engine yet
    learner, found, folder = TinkerLearner(loaded, trained, probe), None, options.output_dir
    if folder is not None:
        write = partial(_write_checkpoint, trained)
        checkpoints = Checkpoints(folder / CHECKPOINTS, keep_last=options.keep_last, write=write)
        found = resumed(checkpoints, options)
        remove_unfinished(folder / EXPORTS)
    if found is not None:
        trained.resume(_place(found.path).state)
        learner.step, learner.first_step = found.state.step, found.state.first_step
    elif start is not None or folder is not None:
        trained.begin(None if start is None else start.state)
    newest = trained.sampler if trained.state else trained.service.base
    engine = RemoteEngine(loaded, f"{options.name}@{learner.step}", newest, at_a_time=options.max_num_seqs)
    trained.on_reopened = engine.renew
    if folder is None:
        with closing(engine):
            yield Opened(engine, [training_router(None, Forecaster(options, engine, learner.resolved))])
        return
    jobs = TrainingJobs(
        engine,
        learner,
        checkpoints,
        output_dir=folder,
        save_every=options.save_every,
        last=None if found is None else found.state.job,
        export=partial(_export, trained),
    )
    with closing(jobs):
        yield opened(options, engine, jobs)
    _forget_unnamed(trained, folder)


def _forget_unnamed(trained: Trained, folder: Path) -> None:
    """Delete the states on the server that no checkpoint or export in a run's folder names any more."""
    with suppress(CheckpointDamaged):  # then nobody knows what it names
        named = {_place(path.parent).state for path in folder.rglob(REMOTE_WEIGHTS)}
        trained.saved |= named  # those of an earlier process, too
        trained.keep_only(named)


def _write_checkpoint(
    trained: Trained, target: Path, loaded: LoadedModel, learner: TinkerLearner, job: TrainedJob | None
) -> None:
    _forget_unnamed(trained, target.parents[1])
    with replacing_folder(target) as folder:
        _write_weights(trained, folder, loaded)
        state = CheckpointState(step=learner.step, first_step=learner.first_step, lora=trained.rank > 0, job=job)
        (folder / STATE).write_text(state.model_dump_json(indent=1))
        write_manifest(folder, "checkpoint")


def _export(trained: Trained, loaded: LoadedModel, target: Path) -> Path:
    with export_folder(target) as folder:
        _write_weights(trained, folder, loaded)
    return target


def _write_weights(trained: Trained, folder: Path, loaded: LoadedModel) -> None:
    """Write where they are; and the adapter in PEFT's format, or the model, if the server gives an archive of it."""
    place, lora = _Place(state=trained.state, model=loaded.path.resolve()), trained.rank > 0
    (folder / REMOTE_WEIGHTS).write_text(place.model_dump_json())
    with TemporaryDirectory(dir=folder.parent, prefix=UNFINISHED) as draft:
        archive, files = Path(draft) / "archive.tar", Path(draft) / "files"
        if not trained.download(archive):
            return
        files.mkdir()
        try:
            _unpack(archive, files, _ADAPTER if lora else _MODEL)
            if lora:
                _complete_adapter(files, place.model)
            else:
                _check_model(files, loaded.num_parameters)
        except _NO_WEIGHTS as error:
            kind = "adapter in PEFT's format" if lora else "model in Hugging Face's format"
            logger.warning("the archive of %s is no %s: %s", place.state, kind, describe_error(error))
            return
        for path in files.iterdir():
            path.rename(folder / path.name)
    if not lora:
        loaded.tokenizer.hf.save_pretrained(folder)


def _unpack(archive: Path, folder: Path, wanted: re.Pattern[str]) -> None:
    """Write the files of these names, wherever in the archive they are."""
    with tarfile.open(archive) as members:
        for member in members:
            name, file = Path(member.name).name, members.extractfile(member) if member.isfile() else None
            if file is not None and wanted.fullmatch(name):
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


def _without_weights(options: TinkerRemoteOptions, path: Path) -> LoadedModel:
    """The folder's tokenizer and sizes."""
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    chats = ChatOptions(options.chat_template_kwargs, options.response_template, options.sanitize_control_tokens)
    tokenizer = load_tokenizer(path, chats)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    if (path / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(path, local_files_only=True)
    limit, ends = context_limit(config, options.max_seq_length), eos_token_ids(model, tokenizer)
    return LoadedModel(model, tokenizer, path, limit, ends, None, (), PackedLinears(nn.Module()))

"""The backend's process: take the ports, load the model, serve it, and end cleanly.

What is served, `open_training` or another protocol, follows from the options.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from nat.backend.inference.engine import Engine, Limits
from nat.backend.inference.worker import Worker
from nat.backend.listen import serve_until_stopped
from nat.backend.lock import claimed
from nat.backend.model import LoadedModel, LoraSettings, load_model
from nat.backend.protocol import Endpoint, Opened, opener_of
from nat.backend.server.app import create_app
from nat.backend.server.training import training_router
from nat.backend.training.checkpoints import Checkpoint, Checkpoints, restore
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.learner import Learner
from nat.backend.training.ledger import LEDGER, JobLedger
from nat.backend.training.reference import Reference
from nat.errors import BackendError
from nat.files import remove_unfinished
from nat.http.guards import HostNames
from nat.http.server import bind, port_of
from nat.secrets import new_key, unredacted
from nat.wire.hosts import host_names
from nat.wire.serving import API_KEY_VARIABLE, CHECKPOINTS, EXPORTS, ServeOptions

logger = logging.getLogger(__name__)


def serve(options: ServeOptions) -> None:
    """Run until told to stop."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with ExitStack() as stack:
        listeners = {
            name: stack.enter_context(bind(options.host, port, command="nat backend serve", option=f"--{name}"))
            for name, port in options.ports.items()
        }
        if options.output_dir is not None:
            stack.enter_context(claimed(options.output_dir))
        endpoint = Endpoint({name: port_of(listener) for name, listener in listeners.items()}, _api_key(options))
        opened = stack.enter_context(opener_of(options)(options, endpoint))
        app = create_app(
            opened.worker,
            api_key=endpoint.api_key,
            well_known_key=options.key_is_well_known,
            answers=opened.answers,
            extra_routers=opened.routers,
        )
        if opened.greeting is not None:
            print(opened.greeting, file=unredacted(sys.stderr))
        serve_until_stopped(
            app,
            listeners,
            names=HostNames(options.host, host_names(options.allowed_hosts)),
            exit_with_parent=options.exit_with_parent,
        )


@contextmanager
def open_training(options: ServeOptions, _: Endpoint) -> Iterator[Opened]:
    """Load one model that trains through `/v1/training`, or go on from its newest checkpoint."""
    checkpoints = None
    found = None
    if options.output_dir is not None:
        checkpoints = Checkpoints(options.output_dir / CHECKPOINTS, keep_last=options.keep_last)
        found = _resumed(checkpoints, options)
        remove_unfinished(options.output_dir / EXPORTS)
    loaded = _load(options, found)
    version = f"{options.name}@{found.state.step if found else 0}"
    limits = Limits(options.max_num_seqs, prefix_cache_bytes=options.prefix_cache_mb * 2**20)
    worker = Worker(Engine(loaded, policy_version=version, limits=limits))
    jobs = None if checkpoints is None else _jobs(options, worker, checkpoints, found)
    try:
        yield Opened(worker, [training_router(jobs)])
    finally:
        (worker if jobs is None else jobs).close()


def _api_key(options: ServeOptions) -> str:
    if options.api_key is not None:
        return options.api_key.get_secret_value()
    if options.well_known_key is not None:
        return options.well_known_key
    key = new_key()
    shown = f"No API key was given (set {API_KEY_VARIABLE}); for this run it is {key}"
    print(shown, file=unredacted(sys.stderr))
    return key


def _resumed(checkpoints: Checkpoints, options: ServeOptions) -> Checkpoint | None:
    if not options.resume and (numbers := checkpoints.numbers()):
        raise BackendError(
            f"{checkpoints.folder} holds checkpoints of an earlier run, up to step {numbers[-1]}",
            hint="go on from there with --resume, or choose another --output_dir",
        )
    found = checkpoints.open()
    if found is not None:
        logger.info("going on from %s", found.path)
    return found


def _load(options: ServeOptions, found: Checkpoint | None) -> LoadedModel:
    """Load the start, or the full weights of a checkpoint; an adapter is put on the start afterwards."""
    lora = None if options.lora_rank is None else LoraSettings(options.lora_rank, options.lora_alpha)
    resumed = found.path if found is not None and not found.state.lora else None
    return load_model(
        resumed or options.model,
        dtype=options.dtype,
        device=options.device,
        lora=lora,
        max_seq_length=options.max_seq_length,
        seed=options.seed,
        verified=resumed is not None,
    )


def _jobs(options: ServeOptions, worker: Worker, checkpoints: Checkpoints, found: Checkpoint | None) -> TrainingJobs:
    assert options.output_dir is not None, "checkpoints have a folder"
    loaded = worker.engine.loaded
    reference = Reference(loaded, lambda: load_model(options.model, dtype=options.dtype, device=options.device).model)
    learner = Learner(loaded, reference)
    if found is not None:
        restore(found, loaded, learner)
    known = found.state.jobs if found is not None else ()
    ledger = JobLedger(checkpoints.folder / LEDGER, step=learner.step, jobs=known)
    return TrainingJobs(
        worker, learner, checkpoints, ledger, output_dir=options.output_dir, save_every=options.save_every
    )

"""The backend's process: load, listen, say that it is ready, and end cleanly.

One line of JSON on stdout, `{"event": "ready", "port": …}`, tells the parent that requests are welcome; all else
goes to stderr. SIGTERM, Ctrl-C and, if asked for, the end of stdin stop it with exit code 0.
"""

import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from types import FrameType

import torch
import uvicorn

from nat.backend.checkpoints import Checkpoint, Checkpoints, restore
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.model import LoadedModel, LoraSettings, load_model
from nat.backend.server.app import create_app
from nat.backend.server.training import training_router
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.backend.training.served import served_logprobs
from nat.errors import BackendError
from nat.wire.serving import API_KEY_VARIABLE, ServeOptions

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints inside the output folder."""
_GRACE_SECONDS = 3
_LAST_GRACE_SECONDS = 10.0


def serve(options: ServeOptions) -> None:
    """Run until told to stop."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    listener = _listen(options)
    api_key = _api_key(options)
    checkpoints = None
    found = None
    if options.output_dir is not None:
        checkpoints = Checkpoints(options.output_dir / CHECKPOINTS, keep_last=options.keep_last)
        found = _resumed(checkpoints, options)
    loaded = _load(options, found)
    version = f"{options.name}@{found.state.step if found else 0}"
    worker = Worker(Engine(loaded, policy_version=version, max_num_seqs=options.max_num_seqs))
    jobs = None if checkpoints is None else _jobs(options, worker, checkpoints, found)
    try:
        _listen_until_stopped(options, worker, jobs, listener, api_key)
    finally:
        (worker if jobs is None else jobs).close()


def _listen_until_stopped(
    options: ServeOptions, worker: Worker, jobs: TrainingJobs | None, listener: socket.socket, api_key: str
) -> None:
    app = create_app(worker, api_key=api_key, extra_routers=[training_router(jobs)])
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            http="httptools",
        )
    )
    if options.exit_with_parent:
        threading.Thread(target=_stop_at_end_of_stdin, args=(server,), daemon=True, name="parent").start()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server takes these over while it runs and raises them again when it has ended, which then is old news.
        signal.signal(number, _already_stopped)
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says that it is ready once it accepts connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        assert sockets, "the socket was opened before the server"
        sys.stdout.write(json.dumps({"event": "ready", "port": sockets[0].getsockname()[1]}) + "\n")
        sys.stdout.flush()


def _listen(options: ServeOptions) -> socket.socket:
    """Take the port before the model is loaded, so that a taken one is told at once."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        listener.close()
        raise BackendError(
            f"cannot listen on {options.host} port {options.port}: {error.strerror}",
            hint="choose another --port; 0 takes a free one",
        ) from error
    return listener


def _api_key(options: ServeOptions) -> str:
    if options.api_key is not None:
        return options.api_key.get_secret_value()
    key = secrets.token_urlsafe(32)
    print(f"No API key was given (set {API_KEY_VARIABLE}); for this run it is {key}", file=sys.stderr)  # noqa: T201 - for the person who started it
    return key


def _resumed(checkpoints: Checkpoints, options: ServeOptions) -> Checkpoint | None:
    found = checkpoints.open()
    if found is not None and not options.resume:
        raise BackendError(
            f"{checkpoints.folder} holds checkpoints of an earlier run, up to step {found.state.step}",
            hint="go on from there with --resume, or choose another --output_dir",
        )
    if found is not None:
        logger.info("going on from %s", found.path)
    return found


def _load(options: ServeOptions, found: Checkpoint | None) -> LoadedModel:
    """Load the start, or the full weights of a checkpoint; an adapter is put on the start afterwards."""
    lora = None if options.lora_rank is None else LoraSettings(options.lora_rank, options.lora_alpha)
    full = found is not None and not found.state.lora
    return load_model(
        found.path if found is not None and full else options.model,
        dtype=options.dtype,
        device=options.device,
        lora=lora,
        max_seq_length=options.max_seq_length,
        seed=options.seed,
    )


def _jobs(options: ServeOptions, worker: Worker, checkpoints: Checkpoints, found: Checkpoint | None) -> TrainingJobs:
    assert options.output_dir is not None, "checkpoints have a folder"
    loaded = worker.engine.loaded
    reference = Reference(loaded, lambda: load_model(options.model, dtype=options.dtype, device=options.device).model)
    learner = Learner(loaded, reference, lambda rows: served_logprobs(loaded, rows))
    if found is not None:
        restore(found, loaded, learner)
    return TrainingJobs(
        worker,
        learner,
        checkpoints,
        output_dir=options.output_dir,
        save_every=options.save_every,
        known=found.state.jobs if found is not None else (),
    )


def _stop_at_end_of_stdin(server: uvicorn.Server) -> None:
    """Wait for the end of stdin; then stop the server, and if that takes too long, the process."""
    while sys.stdin.buffer.read(4096):
        pass
    server.should_exit = True
    timer = threading.Timer(_LAST_GRACE_SECONDS, os._exit, args=(1,))
    timer.daemon = True
    timer.start()


def _already_stopped(number: int, frame: FrameType | None) -> None:
    """Nothing is left to do for this signal."""

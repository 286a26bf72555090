"""The backend's process: take the ports and the output folder, load the model, serve it, and end cleanly.

The options choose the protocol: `open_training` or a plug-in's. One line of JSON on stdout,
`{"event": READY, "port": …}`, tells the parent that the server accepts requests; everything else goes to stderr.
SIGTERM, SIGHUP, Ctrl-C and, with `exit_with_parent`, the end of stdin end the process, which closes
what it has opened, also while it starts.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name

import torch
from transformers import PreTrainedModel

from nat.backend.forecast import Forecaster, check_capacity
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.worker import Worker
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.output_folder import claimed
from nat.backend.path_checks import load_checked_model
from nat.backend.protocol import Endpoint, Open, Opened
from nat.backend.sampling import SamplingEngine
from nat.backend.server.app import create_app
from nat.backend.server.training import training_router
from nat.backend.tokenizer import ChatOptions
from nat.backend.training.checkpoints import Checkpoint, Checkpoints, restore
from nat.backend.training.jobs import TrainingJobs
from nat.backend.training.learner import Learner
from nat.backend.training.mismatch import Probe
from nat.backend.training.reference import Reference
from nat.backend.vllm.opening import choose_probe, vllm_engine
from nat.errors import BackendError
from nat.files import remove_unfinished
from nat.http.guards import HostNames
from nat.http.server import Server, bind, port_of, signals_raised, stop_on_signals
from nat.secrets import new_key, unredacted
from nat.wire.hosts import host_names
from nat.wire.serving import API_KEY_VARIABLE, CHECKPOINTS, EXPORTS, READY, ServeOptions

logger = logging.getLogger(__name__)

_LAST_SECONDS = 50.0
"""For this process to end after its parent, which waits ten seconds longer.

A backend of the same run, which goes on after its parent was killed, waits so long for the folder.
"""


def serve(options: ServeOptions) -> None:
    """Serve until the process is stopped, or the engine cannot answer any more, whose error is then raised."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with ExitStack() as stack:
        stack.enter_context(signals_raised())
        if options.exit_with_parent:
            closed = threading.Event()
            stack.callback(closed.set)
            threading.Thread(target=_end_with_parent, args=(closed,), daemon=True, name="parent").start()
        listeners = {
            name: stack.enter_context(bind(options.host, port, command="nat backend serve", option=f"--{name}"))
            for name, port in options.ports.items()
        }
        if options.output_dir is not None:
            patience = _LAST_SECONDS if options.resume and options.exit_with_parent else 0.0
            stack.enter_context(claimed(options.output_dir, patience=patience))
        endpoint = Endpoint({name: port_of(listener) for name, listener in listeners.items()}, _api_key(options))
        opener: Open = resolve_name(options.opener)
        opened = stack.enter_context(opener(options, endpoint))
        app = create_app(
            opened.engine,
            api_key=endpoint.api_key,
            well_known_key=options.key_is_well_known,
            answers=opened.answers,
            extra_routers=opened.routers,
        )
        if opened.greeting is not None:
            print(opened.greeting, file=unredacted(sys.stderr))
        names = HostNames(options.host, host_names(options.allowed_hosts))
        ready = json.dumps({"event": READY, **endpoint.ports})
        server = Server(app, lambda: print(ready, flush=True), names=names)  # noqa: T201 - for the parent
        failures: list[BackendError] = []

        def stop(failure: BackendError) -> None:
            failures.append(failure)
            server.should_exit = True

        opened.engine.watch(stop)
        stop_on_signals(server)
        server.run(sockets=list(listeners.values()))
        if failures:
            raise failures[0]


def _end_with_parent(closed: threading.Event) -> None:
    """Wait for the end of stdin, then end this process as SIGTERM does; if it hangs, at once.

    Once `closed`, the process ends by itself, and the signal would replace its exit code.
    """
    while os.read(sys.stdin.fileno(), 4096):  # no buffer, whose lock would be held at the end of the process
        pass
    if not closed.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_LAST_SECONDS)
    os._exit(1)


@contextmanager
def open_training(options: ServeOptions, _: Endpoint) -> Iterator[Opened]:
    """Load one model that trains through `/v1/training`, or resume from its newest checkpoint."""
    checkpoints = None
    found = None
    if options.output_dir is not None:
        checkpoints = Checkpoints(options.output_dir / CHECKPOINTS, keep_last=options.keep_last)
        found = resumed(checkpoints, options)
        remove_unfinished(options.output_dir / EXPORTS)
    check_capacity(options)
    full = found.path if found is not None and not found.state.lora else None  # an adapter is restored afterwards
    loaded = load_checked_model(
        full or options.model,
        dtype=options.dtype,
        device=options.device,
        lora=None if options.lora_rank is None else LoraSettings(options.lora_rank, options.lora_alpha),
        load_in_4bit=options.load_in_4bit,
        max_seq_length=options.max_seq_length,
        seed=options.seed,
        verified=full is not None,
        chats=ChatOptions(options.chat_template_kwargs, options.response_template, options.sanitize_control_tokens),
    )
    version = f"{options.name}@{found.state.step if found else 0}"
    with ExitStack() as stack:
        if options.engine == "vllm":
            vllm = stack.enter_context(vllm_engine(options, loaded, version=version))
            jobs = _jobs(options, vllm, checkpoints, found, Probe(vllm.score, choose_probe))
            stack.callback((vllm if jobs is None else jobs).close)
            vllm.start()
            yield opened(options, vllm, jobs, sampler=f"vLLM samples {vllm.server.place}")
        else:
            limits = EngineLimits.of(options.max_num_seqs, options.prefix_cache_mb, options.kv_cache_mb, loaded.device)
            worker = Worker(Engine(loaded, policy_version=version, limits=limits))
            jobs = _jobs(options, worker, checkpoints, found)
            stack.callback((worker if jobs is None else jobs).close)
            yield opened(options, worker, jobs)


def opened(options: ServeOptions, engine: SamplingEngine, jobs: TrainingJobs | None, *, sampler: str = "") -> Opened:
    """The routes of training and sampling."""
    forecaster = Forecaster(options, engine, None if jobs is None else jobs.learner.resolved, sampler=sampler)
    return Opened(engine, [training_router(jobs, forecaster)])


def _api_key(options: ServeOptions) -> str:
    if options.api_key is not None:
        return options.api_key.get_secret_value()
    if options.well_known_key is not None:
        return options.well_known_key
    key = options.key_prefix + new_key()
    text = f"No API key was given (set {API_KEY_VARIABLE}); for this run it is {key}"
    print(text, file=unredacted(sys.stderr))
    return key


def resumed(checkpoints: Checkpoints, options: ServeOptions) -> Checkpoint | None:
    """The checkpoint to go on from; BackendError if there are some, and the options do not say to resume."""
    if not options.resume and (numbers := checkpoints.numbers()):
        raise BackendError(
            f"{checkpoints.folder} holds checkpoints of an earlier run, up to step {numbers[-1]}",
            hint="continue from there with --resume, or choose another --output_dir",
        )
    found = checkpoints.open()
    if found is not None:
        logger.info("resuming from %s", found.path)
    return found


def _jobs(
    options: ServeOptions,
    engine: SamplingEngine,
    checkpoints: Checkpoints | None,
    found: Checkpoint | None,
    probe: Probe | None = None,
) -> TrainingJobs | None:
    if checkpoints is None or options.output_dir is None:
        return None
    loaded = engine.loaded
    longest = loaded.max_seq_length
    phase = None if found is None else checkpoints.phase_of(found)

    def load_reference() -> PreTrainedModel:
        source = phase or options.model
        return load_model(source, dtype=options.dtype, device=options.device, max_seq_length=longest).model

    learner = Learner(loaded, Reference(loaded, load_reference), probe)
    if found is not None:
        restore(found, loaded, learner, phase)
    return TrainingJobs(
        engine,
        learner,
        checkpoints,
        output_dir=options.output_dir,
        save_every=options.save_every,
        last=None if found is None else found.state.job,
        runs_programs=options.exit_with_parent,
    )

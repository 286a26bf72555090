"""Make the vLLM engine of a backend from its options."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from nat.backend.forecast import share_for_vllm
from nat.backend.memory import total_bytes
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import probe_rows, thinned
from nat.backend.vllm.checks import check_updates, dtype_name
from nat.backend.vllm.engine import VllmEngine
from nat.backend.vllm.folders import folder_with_room, private_folder, weights_folder
from nat.backend.vllm.hand_over import AdapterHandOver, GiveAll, HandOver, WeightsHandOver
from nat.backend.vllm.server import OwnServer, ServerAtUrl, VllmServer
from nat.backend.vllm.sleep import release_cached, sleep_rule
from nat.backend.vllm.weights import must_untie, write_weights
from nat.errors import EngineNotStarted
from nat.sizing.memory import bytes_text
from nat.wire.model_folder import ADAPTER_CONFIG
from nat.wire.serving import ServeOptions

LOG = "vllm.log"
_COMMAND = "vllm serve"
_REFUSED = {"--api-key": "which a vLLM that is started here does not need: only this user can open its socket"}
_IN_PARTS = "which can prefill a prompt in parts; on a CPU, a seed then ends vLLM 0.32"
_REFUSED_ON_CPU = {**_REFUSED, "--enable-chunked-prefill": _IN_PARTS, "--long-prefill-token-threshold": _IN_PARTS}
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM takes for --max-lora-rank."""
_VISIBLE, _CORES = "CUDA_VISIBLE_DEVICES", "VLLM_CPU_OMP_THREADS_BIND"
_PARALLEL = ("--tensor-parallel-size", "-tp")
_PROBE_TOKENS = 64
"""Tokens that are scored after an update, each by a request of its own."""


@contextmanager
def vllm_engine(options: ServeOptions, loaded: LoadedModel, *, version: str) -> Iterator[VllmEngine]:
    """Lend the engine, which is not started yet, and remove its folders at the end; it is closed by then.

    Raises:
        EngineNotStarted: vLLM cannot serve this model or adapter.

    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO it logs every request
    with private_folder() as private:
        trained = options.output_dir is not None
        disk = place = options.output_dir or private
        if options.vllm_url is None:  # a server of the user's may not see our shared memory
            needed = sum(weight.nbytes for weight in loaded.trainable_parameters().values())
            place = folder_with_room(needed, place)
        with weights_folder(place) as weights, weights_folder(disk) as first:
            sleeps = sleep_rule(options.vllm_sleep, loaded.device)

            def hand_over(give_all: GiveAll, base: str) -> HandOver | None:
                if not trained:
                    return None
                lora = loaded.peft is not None
                give_all(lambda control: check_updates(control, lora=lora, sleeps=sleeps is not None))
                if lora:
                    return AdapterHandOver(give_all, loaded, base, weights)
                return WeightsHandOver(give_all, loaded, base, weights, keeps=len(servers) > 1)

            path = options.model  # a checkpoint, which `loaded` may come from, is deleted before vLLM is restarted
            if trained and options.vllm_url is None and must_untie(loaded):
                path = first / "start"
                path.mkdir()
                write_weights(loaded, path)
                loaded.tokenizer.hf.save_pretrained(path)
            servers = _servers(options, loaded, path, private)
            yield VllmEngine(loaded, servers, hand_over, version=version, sleeps=sleeps)


def choose_probe(rows: Sequence[Row]) -> list[Row]:
    """Choose few tokens of the usual rows, because each is scored by a request of its own."""
    return thinned(probe_rows(rows), _PROBE_TOKENS)


def _servers(options: ServeOptions, loaded: LoadedModel, path: Path, private: Path) -> Sequence[VllmServer]:
    if options.vllm_urls:
        key = options.vllm_api_key
        return [ServerAtUrl(url, None if key is None else key.get_secret_value()) for url in options.vllm_urls]
    if (path / ADAPTER_CONFIG).is_file():
        raise EngineNotStarted(
            f"{path} is an adapter, which vLLM cannot start with",
            hint="export it as a plain model first (`nat runs export`), and set model to that folder",
        )
    command = shlex.split(options.vllm_command or "") or _COMMAND.split()
    if loaded.device.type == "cpu":
        cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else range(os.cpu_count() or 1)
        every, shared = cores_of_engines(options, cores), False
    else:
        every, shared = cards_of_engines(options, torch.cuda.device_count(), os.environ.get(_VISIBLE))
    added = [*(memory_arguments(options, loaded) if shared else []), *shlex.split(options.vllm_args or "")]
    refused = _REFUSED_ON_CPU if loaded.device.type == "cpu" else _REFUSED
    if options.replicas > 1 or options.tensor_parallel > 1:
        refused = {**refused, **dict.fromkeys(_PARALLEL, "which tensor_parallel says for each engine")}
    for name in (word.partition("=")[0].replace("_", "-") for word in added):
        if name in refused:
            raise EngineNotStarted(f"vllm_args has {name}, {refused[name]}", hint="leave it out")
    # `vllm serve` takes the model as a positional argument only; the module `api_server` knows no such argument.
    model = [str(path)] if command[-1] == "serve" else ["--model", str(path)]
    arguments = [*model, *serve_arguments(options, loaded), *added]
    logs, servers = options.output_dir or private, list[VllmServer]()
    for number, variables in enumerate(every):
        log, folder = (LOG, private) if len(every) == 1 else (f"vllm_{number}.log", private / f"{number}")
        folder.mkdir(exist_ok=True)
        start = partial(OwnServer, command, arguments, timeout=options.vllm_startup_timeout)
        servers.append(start(log_path=logs / log, folder=folder, variables=variables))
    return servers


def cores_of_engines(options: ServeOptions, cores: Sequence[int]) -> list[dict[str, str]]:
    """The variables that give each engine on a CPU cores of its own; by itself, each of several takes the same ones."""
    count, each = options.replicas, len(cores) // options.replicas
    if options.tensor_parallel > 1:
        raise EngineNotStarted("tensor_parallel: an engine on a CPU is not split", hint="leave it out")
    if each == 0:
        raise EngineNotStarted(
            f"replicas {count}: this process may use {len(cores)} cores, and each engine takes at least one",
            hint=f"set replicas to at most {len(cores)}",
        )
    if count == 1 or _CORES in os.environ:
        return [{}] * count
    return [{_CORES: ",".join(map(str, cores[at * each : (at + 1) * each]))} for at in range(count)]


def cards_of_engines(options: ServeOptions, count: int, visible: str | None) -> tuple[list[dict[str, str]], bool]:
    """The variables that give each engine its GPUs, and whether one of these learns, too."""
    each, own = options.tensor_parallel, own_cards(options.device, count, visible)
    needed = options.replicas * each
    if needed == 1:
        return [own], not own
    names = (own.get(_VISIBLE) or visible or ",".join(map(str, range(count)))).split(",")[:count]
    if not own and needed < len(names):
        own, names = {_VISIBLE: "others"}, names[1:]
    if needed > len(names):
        raise EngineNotStarted(
            f"replicas {options.replicas} with tensor_parallel {each} take {needed} GPUs; vLLM can have {len(names)}",
            hint=f"lower one of them, or let this process see more GPUs ({_VISIBLE})",
        )
    return [{_VISIBLE: ",".join(names[at : at + each])} for at in range(0, needed, each)], not own


def vllm_place(places: Sequence[str]) -> str:
    """Where vLLM's engines sample, for people; the place of each is an address or what its variables say."""
    return f"vLLM samples {' and '.join(map(_where, places))}"


def _where(place: str) -> str:
    name, _, value = place.partition("=")
    known = {"": "on the first of these", _VISIBLE: f"on GPU {value}", _CORES: f"on cores {value}"}
    return known.get(name, f"at {place}")


def memory_arguments(options: ServeOptions, loaded: LoadedModel) -> list[str]:
    """What the learner leaves of its card to vLLM; arguments of the user's come later, and win.

    Raises:
        EngineNotStarted: that is less than vLLM's weights.

    """
    release_cached(loaded.device)  # else vLLM would find less than is counted as free
    share = share_for_vllm(options, loaded)
    if share is None:
        return []
    total, weights = total_bytes(loaded.device) or 0, loaded.num_parameters * loaded.dtype.itemsize
    if share * total <= weights and "--gpu-memory-utilization" not in (options.vllm_args or ""):
        raise EngineNotStarted(
            f"beside the learner, {bytes_text(share * total)} of the GPU's {bytes_text(total)} are left for vLLM; its "
            f"weights alone take {bytes_text(weights)}",
            hint="train with lora, set vllm_sleep: training, or use engine: embedded, which shares the learner's "
            "weights; --gpu-memory-utilization in vllm_args sets the share yourself",
        )
    return ["--gpu-memory-utilization", f"{share:.2f}"]


def own_cards(device: str, count: int, visible: str | None) -> dict[str, str]:
    """The variable that leaves vLLM all GPUs but the learner's, if `device` has its number; else they share the first.

    Raises:
        EngineNotStarted: there is no other GPU.

    """
    kind, _, number = device.partition(":")
    if not number:
        return {}
    names = (visible or ",".join(map(str, range(count)))).split(",")[:count]
    others = [name for at, name in enumerate(names) if at != int(number)]
    if not others:
        raise EngineNotStarted(
            f"device {device} is the learner's alone, and there is no other GPU for vLLM",
            hint=f"set device to {kind}, so that both share it, or let this process see another GPU ({_VISIBLE})",
        )
    return {_VISIBLE: ",".join(others)}


def serve_arguments(options: ServeOptions, loaded: LoadedModel) -> list[str]:
    """The arguments of `vllm serve` that our requests and updates need."""
    valued = {
        "--served-model-name": options.name,
        "--dtype": dtype_name(loaded),
        "--max-model-len": loaded.max_seq_length,
        "--max-num-seqs": options.max_num_seqs,
        "--generation-config": "vllm",
        "--logprobs-mode": "processed_logprobs",
        "--max-logprobs": -1,
        "--uvicorn-log-level": "warning",
    }
    arguments = [text for name, value in valued.items() for text in (name, str(value))]
    arguments += ["--enable-scale-out", "--enable-prompt-tokens-details", "--no-log-error-stack"]
    if loaded.device.type == "cpu":  # chunks rewind the generator of a seed, which torch cannot do on a CPU
        arguments += ["--enforce-eager", "--block-size", "32", "--no-enable-chunked-prefill"]
    elif options.vllm_sleep != "never":  # vLLM's CPU build has the routes of the sleep mode, but not the option
        arguments.append("--enable-sleep-mode")
    if options.tensor_parallel > 1:
        arguments += ["--tensor-parallel-size", str(options.tensor_parallel)]
    if loaded.peft is not None and options.output_dir is not None:
        rank = options.lora_rank or 0
        most = next((most for most in _RANKS if most >= rank), None)
        if most is None:
            raise EngineNotStarted(f"vLLM takes no LoRA rank of {rank}", hint=f"set lora_rank to at most {_RANKS[-1]}")
        arguments += ["--enable-lora", "--max-loras", "1", "--max-cpu-loras", "2", "--max-lora-rank", str(most)]
    return arguments

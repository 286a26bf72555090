"""Make the vLLM engine of a backend from its options."""

import logging
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from nat.backend.forecast import share_for_vllm
from nat.backend.memory import total_bytes
from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import probe_rows, thinned
from nat.backend.vllm.checks import check_updates, dtype_name
from nat.backend.vllm.client import Control
from nat.backend.vllm.engine import VllmEngine
from nat.backend.vllm.hand_over import AdapterHandOver, HandOver, WeightsHandOver
from nat.backend.vllm.server import OwnServer, ServerAtUrl, VllmServer
from nat.errors import EngineFailed
from nat.sizing.memory import bytes_text
from nat.wire.model_folder import ADAPTER_CONFIG
from nat.wire.serving import ServeOptions

LOG, WEIGHTS = "vllm.log", "vllm-weights"
_COMMAND = "vllm serve"
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM takes for --max-lora-rank."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PROBE_TOKENS = 64
"""Tokens that are scored after an update, each by a request of its own."""
_SHORT_BYTES = 70
"""A path of a Unix socket has at most 103 bytes, on Linux 107; this leaves room for the names below the folder."""


@contextmanager
def vllm_engine(options: ServeOptions, loaded: LoadedModel, *, version: str) -> Iterator[VllmEngine]:
    """Lend the engine, which is not started yet, and remove its folders at the end; it is closed by then."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO it logs every request
    place = Path(tempfile.gettempdir())
    short = len(os.fsencode(place)) <= _SHORT_BYTES
    with tempfile.TemporaryDirectory(prefix="nat-vllm-", dir=place if short else Path("/tmp")) as private:
        weights = None if options.output_dir is None else options.output_dir / WEIGHTS
        if weights is not None:
            shutil.rmtree(weights, ignore_errors=True)  # of a backend that was killed

        def hand_over(control: Control, base: str) -> HandOver | None:
            if weights is None:
                return None
            lora = loaded.peft is not None
            check_updates(control, lora=lora)
            return (AdapterHandOver if lora else WeightsHandOver)(control, loaded, base, weights)

        try:
            yield VllmEngine(loaded, _server(options, loaded, Path(private)), hand_over, version=version)
        finally:
            if weights is not None:
                shutil.rmtree(weights, ignore_errors=True)


def choose_probe(rows: Sequence[Row]) -> list[Row]:
    """Choose few tokens of the usual rows, because each is scored by a request of its own."""
    return thinned(probe_rows(rows), _PROBE_TOKENS)


def _server(options: ServeOptions, loaded: LoadedModel, private: Path) -> VllmServer:
    tied = loaded.model.config.get_text_config().tie_word_embeddings
    if options.output_dir is not None and loaded.peft is None and loaded.device.type == "cpu" and tied:
        raise EngineFailed(
            "on a CPU, vLLM keeps a copy of an output layer that is tied to the embeddings, which no update reaches",
            hint="use lora, a model whose output layer is not tied, or engine embedded",
        )
    if options.vllm_url is not None:
        key = options.vllm_api_key
        return ServerAtUrl(options.vllm_url, None if key is None else key.get_secret_value())
    if (options.model / ADAPTER_CONFIG).is_file():
        raise EngineFailed(
            f"{options.model} is an adapter, which vLLM cannot start with",
            hint="export it as a plain model first (`nat runs export`), and set model to that folder",
        )
    command = shlex.split(options.vllm_command or "") or _COMMAND.split()
    variables = own_cards(options.device, torch.cuda.device_count(), os.environ.get(_VISIBLE))
    shares = loaded.device.type == "cuda" and not variables
    added = [*(memory_arguments(options, loaded) if shares else []), *shlex.split(options.vllm_args or "")]
    if any(word.partition("=")[0].replace("_", "-") == "--api-key" for word in added):
        raise EngineFailed(
            "vllm_args has --api-key, which a vLLM that is started here does not need: only this user can open its "
            "socket",
            hint="leave it out",
        )
    # `vllm serve` takes the model as a positional argument only; the module `api_server` knows no such argument.
    model = [str(options.model)] if command[-1] == "serve" else ["--model", str(options.model)]
    return OwnServer(
        [*command, *model, *serve_arguments(options, loaded), *added],
        log_path=(options.output_dir or private) / LOG,
        timeout=options.vllm_startup_timeout,
        folder=private,
        variables=variables,
    )


def own_cards(device: str, count: int, visible: str | None) -> dict[str, str]:
    """The variable that leaves vLLM all GPUs but the learner's, if `device` has its number; else both share one."""
    kind, _, number = device.partition(":")
    if not number:
        return {}
    names = (visible or ",".join(map(str, range(count)))).split(",")[:count]
    others = [name for at, name in enumerate(names) if at != int(number)]
    if not others:
        raise EngineFailed(
            f"device {device} is the learner's alone, and there is no other GPU for vLLM",
            hint=f"set device to {kind}, so that both share it, or let this process see another GPU ({_VISIBLE})",
        )
    return {_VISIBLE: ",".join(others)}


def memory_arguments(options: ServeOptions, loaded: LoadedModel) -> list[str]:
    """What the learner leaves of its card to vLLM; arguments of the user's come later, and win."""
    torch.cuda.empty_cache()  # else vLLM would find less than is counted as free
    share = share_for_vllm(options, loaded)
    if share is None:
        return []
    total, weights = total_bytes(loaded.device) or 0, loaded.num_parameters * loaded.dtype.itemsize
    if share * total <= weights and "--gpu-memory-utilization" not in (options.vllm_args or ""):
        raise EngineFailed(
            f"beside the learner, {bytes_text(share * total)} of the GPU's {bytes_text(total)} are left for vLLM; its "
            f"weights alone take {bytes_text(weights)}",
            hint="train with lora, or use engine: embedded, which shares the learner's weights; "
            "--gpu-memory-utilization in vllm_args sets the share yourself",
        )
    return ["--gpu-memory-utilization", f"{share:.2f}"]


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
    if options.tensor_parallel > 1:
        arguments += ["--tensor-parallel-size", str(options.tensor_parallel)]
    if loaded.peft is not None and options.output_dir is not None:
        rank = options.lora_rank or 0
        most = next((most for most in _RANKS if most >= rank), None)
        if most is None:
            raise EngineFailed(f"vLLM takes no LoRA rank of {rank}", hint=f"set lora_rank to at most {_RANKS[-1]}")
        arguments += ["--enable-lora", "--max-loras", "1", "--max-cpu-loras", "2", "--max-lora-rank", str(most)]
    return arguments

"""The whole backend on one GPU: tokens per second of the sampler and of an update, and the most memory.

    python -m bench.gpu --shapes qwen3-0.6b qwen3-4b     # on a GPU
    python -m bench.gpu --device cpu --shapes tiny       # shows that it works; no figure of a GPU

It downloads nothing: the weights are random, in the shapes of Qwen2.5 and Qwen3. Each line's backend is a process of
its own, reached over HTTP as `nat finetune` does.
"""

import argparse
import asyncio
import subprocess
import tempfile
import time
from itertools import product
from random import Random

from bench.load import Load, play
from bench.report import machine, now
from bench.servers import Limits, Server, our_backend
from bench.shapes import CACHE, SHAPES, checkpoint

from nat.plugins.local.client import BackendClient
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout, TrainingRow

WEIGHTS = {"full": [], "LoRA, rank 16": ["--lora_rank=16"]}
PROMPT, ANSWER = 128, 64
ROUNDS = 3
"""The first warms up; the fastest counts."""


def main() -> None:
    """Print a line for each shape, kind of weights and case."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=main.__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--shapes", choices=SHAPES, nargs="+", default=["qwen2.5-0.5b", "qwen3-4b"])
    parser.add_argument("--weights", choices=WEIGHTS, nargs="+", default=list(WEIGHTS))
    parser.add_argument("--chats", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--prompt", type=int, default=PROMPT, help="tokens before each answer")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048], help="tokens of a row of an update")
    parser.add_argument("--tokens", type=int, default=16384, help="of an update")
    options = parser.parse_args()
    print(f"{machine()}; {_device(options.device)}\n")
    print("| shape, weights | case | tokens/s | memory, MB | measured |\n|---|---|---:|---:|---|", flush=True)
    for shape, weights in product(options.shapes, options.weights):
        dtype = "bfloat16" if options.device == "cuda" else "float32"
        longest = max(options.prompt + ANSWER + 3, *options.lengths)
        limits = Limits(dtype, max(options.chats), longest)
        own = [f"--device={options.device}", *WEIGHTS[weights]]
        with (
            tempfile.TemporaryDirectory() as folder,
            our_backend(checkpoint(shape, dtype, cache=CACHE), limits, [*own, f"--output_dir={folder}"]) as server,
        ):
            vocabulary = SHAPES[shape]().vocab_size
            for chats in options.chats:
                load = Load(chats, options.prompt, ANSWER)
                seconds = _sampled(server, load, vocabulary)
                _tell(f"{shape}, {weights} | {load}", load.sampled / seconds, options.device)
            for length in options.lengths:
                rows = max(2, options.tokens // length)
                seconds = asyncio.run(_trained(server, rows, length, vocabulary))
                _tell(f"{shape}, {weights} | {rows} rows of {length}", rows * length / seconds, options.device)


def _sampled(server: Server, load: Load, vocabulary: int) -> float:
    """Seconds of the fastest round."""
    seconds = []
    for number in range(ROUNDS):
        began = time.perf_counter()
        play(server, load, seed=str(number), vocabulary=vocabulary)
        seconds.append(time.perf_counter() - began)
    return min(seconds)


async def _trained(server: Server, rows: int, length: int, vocabulary: int) -> float:
    """Seconds of the fastest job with one optimizer step on rows of random tokens, the second half sampled."""
    random, seconds, sampled = Random(length), [], length // 2
    config = TrainingConfig(
        advantage="given", normalize_advantages=False, steps_per_batch=1, max_logprob_difference=1e9
    )
    span = Span(start=length - sampled, stop=length, logprobs=[-10.0] * sampled)
    async with BackendClient(f"http://127.0.0.1:{server.port}", server.api_key) as client:
        for number in range(ROUNDS):
            groups = []
            for at in range(rows):
                row = TrainingRow(token_ids=[random.randrange(5, vocabulary) for _ in range(length)], spans=[span])
                rollout = TrainingRollout(reward=0.0, advantage=1.0, rows=[row])
                groups.append(TrainingGroup(id=str(at), rollouts=[rollout]))
            began, name = time.perf_counter(), f"{rows}-{length}-{number}"
            state = await client.submit(TrainingJob(id=name, groups=groups, config=config))
            while not state.status.final:
                state = await client.job(name, wait=20)
            if state.status.value != "completed":
                raise SystemExit(f"the update failed: {state}")
            seconds.append(time.perf_counter() - began)
    return min(seconds)


def _tell(case: str, rate: float, device: str) -> None:
    print(f"| {case} | {rate:,.0f} | {_used_mb(device)} | {now()} |", flush=True)


def _device(device: str) -> str:
    return "no GPU" if device == "cpu" else _nvidia_smi("name,driver_version")


def _used_mb(device: str) -> str:
    return "" if device == "cpu" else _nvidia_smi("memory.used").removesuffix(" MiB")


def _nvidia_smi(query: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]


if __name__ == "__main__":
    main()

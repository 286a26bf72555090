"""How long a model's matrix products alone take, without norms, attention, sampling or Python.

    python -m bench.ceiling --shape smollm2-135m --dtype bfloat16

Torch's `linear` and weights reordered for MKL (float32 alone) and oneDNN are timed, and the fastest counts: an engine
with the kernels that torch brings cannot sample faster. Every layer has matrices of its own, as in the model, so
that they come from memory and not from the processor's cache. Shapes: M rows, K features in, N features out.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from bench.load import Load
from bench.shapes import DTYPES, SHAPES, SPREAD
from torch import Tensor
from torch.nn.functional import linear
from transformers import PreTrainedConfig

from nat.backend.products import Packer, Product, with_mkl, with_onednn

CASES = (("smollm2-135m", "float32"), ("smollm2-135m", "bfloat16"), ("qwen2.5-0.5b", "bfloat16"))
ROWS = (1, 16, 64, 512, 2048)
MOST_ROWS = 2048
"""Prompt tokens of one pass; longer prompts take several."""
REPETITIONS, ENOUGH_SECONDS = 7, 3.0


@dataclass(frozen=True)
class Pass:
    """Seconds of one pass with M rows: through all layers, and from the last one to the logits."""

    rows: int
    layers: float
    logits: float
    product: str
    """The fastest product of the layers."""


def main() -> None:
    """Print one row per shape, dtype and number of rows; as JSON if asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.ceiling", description=main.__doc__)
    parser.add_argument("--shape", choices=SHAPES, help="this shape only")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="precision of --shape")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--json", action="store_true", help="print the seconds as JSON")
    options = parser.parse_args()
    cases = CASES if options.shape is None else ((options.shape, options.dtype),)
    if not options.json:
        print(
            "| shape | dtype | rows | layers, ms | logits, ms | GFLOP/s | product |\n|---|---|---:|---:|---:|---:|---|"
        )
    for shape, dtype in cases:
        config = SHAPES[shape]()
        passes = _measured(config, DTYPES[dtype], options.rows)
        if options.json:
            print(json.dumps([asdict(each) for each in passes]))
            continue
        for each in passes:
            rate = 2 * each.rows * num_weights(config) / (each.layers + each.logits) / 1e9
            times = f"{1000 * each.layers:,.1f} | {1000 * each.logits:,.1f}"
            print(f"| {shape} | {dtype} | {each.rows} | {times} | {rate:,.0f} | {each.product} |", flush=True)


def passes(shape: str, dtype: str, rows: Sequence[int]) -> dict[int, Pass]:
    """Measure in a process of its own; gives the passes by their rows."""
    command = [sys.executable, "-m", "bench.ceiling", f"--shape={shape}", f"--dtype={dtype}", "--json"]
    ended = subprocess.run([*command, "--rows", *map(str, rows)], check=True, stdout=subprocess.PIPE)
    return {each["rows"]: Pass(**each) for each in json.loads(ended.stdout)}


def rows_of(load: Load) -> tuple[int, int]:
    """Rows of the passes of a load: through its prompts, and for each step after them."""
    return min(load.chats * load.prompt, MOST_ROWS), load.chats


def seconds_of(load: Load, measured: dict[int, Pass]) -> float:
    """Seconds of a load's products if each token is computed once and all chats step together."""
    prompt, step = (measured[rows] for rows in rows_of(load))
    prefill = load.chats * load.prompt / prompt.rows * prompt.layers + step.logits
    return load.requests * load.turns * (prefill + (load.answer - 1) * (step.layers + step.logits))


def matrices(config: PreTrainedConfig) -> list[tuple[int, int]]:
    """The matrices [N, K] of one layer: queries, keys, values, output, gate, up and down."""
    hidden, inner = config.hidden_size, config.intermediate_size
    head = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    queries, keys = head * config.num_attention_heads, head * config.num_key_value_heads
    attention = [(queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries)]
    return [*attention, (inner, hidden), (inner, hidden), (hidden, inner)]


def num_weights(config: PreTrainedConfig) -> int:
    """Weights that each token is multiplied with: those of all layers and of the logits."""
    layer = sum(n * k for n, k in matrices(config))
    return int(config.num_hidden_layers * layer + config.vocab_size * config.hidden_size)


@torch.inference_mode()
def _measured(config: PreTrainedConfig, dtype: torch.dtype, rows: Sequence[int]) -> list[Pass]:
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    shapes = config.num_hidden_layers * matrices(config)
    layers = [torch.randn(shape).mul_(SPREAD).to(dtype) for shape in shapes]
    logits = [torch.randn(config.vocab_size, config.hidden_size).mul_(SPREAD).to(dtype)]
    widths = {k for _, k in matrices(config)}
    inputs = {count: {width: torch.randn(count, width).to(dtype) for width in widths} for count in rows}
    times: dict[int, list[tuple[float, float, str]]] = {count: [] for count in rows}
    for name, reordered in _products(dtype).items():
        of_layers, of_logits = ([(w.shape[1], reordered(w, None)) for w in part] for part in (layers, logits))
        for count in rows:
            times[count].append((_seconds(of_layers, inputs[count]), _seconds(of_logits, inputs[count]), name))
    return [Pass(count, *min(times[count], key=lambda each: each[0] + each[1])) for count in rows]


def _products(dtype: torch.dtype) -> dict[str, Packer]:
    of_float32: dict[str, Packer] = {"MKL": with_mkl} if dtype == torch.float32 else {}
    return {
        "linear": lambda weight, bias: partial(linear, weight=weight, bias=bias),
        **of_float32,
        "oneDNN": with_onednn,
    }


def _seconds(products: Sequence[tuple[int, Product]], inputs: dict[int, Tensor]) -> float:
    """Seconds of the fastest pass after one for warm-up: other work on the machine only adds time."""
    times: list[float] = []
    while not times or (len(times) <= REPETITIONS and sum(times) < ENOUGH_SECONDS):
        began = time.perf_counter()
        for width, product in products:
            product(inputs[width])
        times.append(time.perf_counter() - began)
    return min(times[1:] or times)


if __name__ == "__main__":
    main()

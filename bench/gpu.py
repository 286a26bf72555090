"""The whole backend on one GPU: sampler, learner with its share of the device's products, and the parts of an epoch.

    python -m bench.gpu                                  # Qwen2.5 on a GPU, at most eight minutes
    python -m bench.gpu --suite long                     # another suite, at most eight minutes, too
    python -m bench.gpu --device cpu --shapes tiny       # shows that it works; no figure of a GPU

It downloads nothing: the weights are random, in the shapes of Qwen2.5 and Qwen3. Each shape and mode runs in a process
of its own (`bench/gpu_case.py`). MFU is what an update needs at least, divided by what the data sheet promises for
bfloat16.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from bench.ceiling import num_weights
from bench.gpu_case import MODES, add_sizes
from bench.shapes import SHAPES

SUITES: dict[str, dict[str, Any]] = {
    "qwen2.5": {"shapes": ["qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"], "mode": ["lora", "full"]},
    "qwen3": {"shapes": ["qwen3-0.6b", "qwen3-4b"], "mode": ["lora", "qlora"], "chats": [1, 64], "lengths": [2048]},
    "qwen3-8b": {"shapes": ["qwen3-8b"], "mode": ["lora", "qlora"], "chats": [1, 64], "lengths": [2048]},
    "long": {
        "shapes": ["qwen3-4b"],
        "mode": ["lora"],
        "chats": [1, 4],
        "prompts": [8192, 32768],
        "lengths": [8192, 32768],
    },
    "cudnn": {
        "shapes": ["qwen3-0.6b"],
        "mode": ["lora"],
        "chats": [1, 16],
        "prompts": [128, 8192],
        "cudnn": ["on", "off"],
        "part": ["sampler"],
    },
    "graphs": {
        "shapes": ["qwen3-0.6b", "qwen2.5-1.5b"],
        "mode": ["lora", "full"],
        "chats": [1, 16, 64],
        "graphs": ["on", "off"],
        "part": ["sampler"],
    },
}
"""What one call measures, unless its options say otherwise."""
SWITCHES = {"cudnn": "cuDNN's attention", "graphs": "CUDA graphs of the sampler's steps"}
"""What may be turned off, to measure with and without."""
SECONDS = 470.0
"""For everything; what does not fit is listed as left out."""
DATASHEET_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
"""Dense bfloat16 operations per second, by a part of the device's name."""
BYTES_PER_WEIGHT = 16
"""Of training all weights: bfloat16 weights and gradients, float32 masters, and AdamW's two means."""
Figure = dict[str, Any]


def main() -> None:
    """Print a table for people and one JSON object for programs."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=main.__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--suite", choices=SUITES, default="qwen2.5", help="the defaults of the options below")
    parser.add_argument("--shapes", choices=SHAPES, nargs="+")
    parser.add_argument("--mode", choices=MODES, nargs="+", help="what is trained")
    for name, what in SWITCHES.items():
        parser.add_argument(f"--{name}", choices=("on", "off"), nargs="+", default=["on"], help=what)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time for everything")
    parser.add_argument("--out", type=Path, help="also write the JSON object here")
    add_sizes(parser)
    parser.set_defaults(**SUITES[parser.parse_args().suite])
    options = parser.parse_args()
    sizes = [f"--tokens={options.tokens}"]
    for name in ("chats", "prompts", "lengths", "part"):
        sizes += [f"--{name}", *map(str, getattr(options, name))]
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no CUDA device here; try --device cpu --shapes tiny")
    deadline = time.monotonic() + options.seconds
    found: list[Figure] = []
    for shape, mode, *values in product(options.shapes, options.mode, *(getattr(options, name) for name in SWITCHES)):
        switches = dict(zip(SWITCHES, values, strict=True))
        more = [f"--no-{name}" for name, value in switches.items() if value == "off"]
        told = {name: value for name, value in switches.items() if len(getattr(options, name)) > 1}
        found += [figure | told for figure in _figures(shape, options.device, [*sizes, *more], deadline, mode)]
    device = _device(options.device)
    for line in table(found, device):
        print(line)
    text = json.dumps({"device": device, "figures": found})
    print(f"\n{text}")
    if options.out is not None:
        options.out.write_text(text)


def _figures(shape: str, device: str, sizes: Sequence[str], deadline: float, mode: str) -> list[Figure]:
    """The figures of one shape and mode, or why there are none."""
    needed, there = BYTES_PER_WEIGHT * num_weights(SHAPES[shape]()), _memory(device)
    if mode == "full" and needed > there:
        reason = f"needs {needed / 1e9:.0f} GB, the device has {there / 1e9:.0f}"
        return [{"part": "left out", "shape": shape, "mode": MODES[mode], "error": reason}]
    command = [
        sys.executable,
        "-m",
        "bench.gpu_case",
        f"--shape={shape}",
        f"--mode={mode}",
        f"--device={device}",
        *sizes,
    ]
    left = max(0.0, deadline - time.monotonic())
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=left, check=False)
        output, reason = ended.stdout, f"the process ended with code {ended.returncode}" if ended.returncode else ""
    except subprocess.TimeoutExpired as error:
        output, reason = error.stdout or b"", "the time for everything was over"
    found = [{"shape": shape, **json.loads(line)} for line in output.splitlines() if line.startswith(b"{")]
    if reason:
        found.append({"part": "left out", "shape": shape, "mode": MODES[mode], "error": reason})
    return found


def table(found: Sequence[Figure], device: Figure) -> Iterator[str]:
    """One line for each figure."""
    yield "| part | shape, mode | case | result | peak, GB |\n|---|---|---|---|---:|"
    for figure in found:
        where = f"{figure['part']} | {figure['shape']}, {figure['mode']}"
        yield f"| {where} | {_case(figure)} | {_result(figure, device)} | {figure.get('peak_gb', 0.0):.1f} |"


def _case(figure: Figure) -> str:
    if "chats" in figure:
        without = "".join(f", without {what}" for name, what in SWITCHES.items() if figure.get(name) == "off")
        return f"chats: {figure['chats']} after {figure['prompt']} tokens{without}"
    if "length" in figure:
        return f"{figure['rows']} rows of {figure['length']}"
    return f"{figure['rollouts']} rollouts" if "rollouts" in figure else ""


def _result(figure: Figure, device: Figure) -> str:
    if "error" in figure:
        return str(figure["error"])
    if figure["part"] == "epoch":
        parts = {name: value for name, value in figure.items() if name.endswith("_seconds")}
        times = ", ".join(
            f"{name.removesuffix('_seconds').replace('_', ' ')} {value:.2f} s" for name, value in parts.items()
        )
        return f"{figure['status']}: {times}; sampler and learner differ by {figure['logprob_diff_mean']:.4f}"
    if figure["part"] == "memory":
        predicted = figure["predicted_gb"]
        return f"predicted {predicted:.1f} GB, {predicted / figure['peak_gb'] - 1:+.0%} of the measured peak"
    rate = f"{figure['tokens_per_second']:,.0f} tokens/s"
    if "flops" not in figure:
        why = f"; no graphs: {figure['no_graphs']}" if figure.get("no_graphs") else ""
        return f"{rate}, at first {figure['first_tokens_per_second']:,.0f}{why}"
    promised = device["datasheet_flops"]
    share = f"{figure['flops'] / device['flops']:.0%} of the device's products"
    return f"{rate}, {share}" + (f", MFU {figure['flops'] / promised:.1%}" if promised else "")


def _device(name: str) -> Figure:
    """What the figures were measured on."""
    cuda = name == "cuda"
    title = torch.cuda.get_device_name() if cuda else platform.processor() or platform.machine()
    promised = next((flops for part, flops in DATASHEET_FLOPS.items() if part in title), None)
    flops = products_per_second(name, torch.bfloat16 if cuda else torch.float32)
    return {"name": title, "torch": torch.__version__, "datasheet_flops": promised, "flops": flops}


def _memory(device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return 2**62  # a CPU shows only that the bench works


def products_per_second(device: str, dtype: torch.dtype) -> float:
    """What large matrix products reach on this device."""
    size, times = (8192, 20) if device == "cuda" else (1024, 5)
    left = torch.randn(size, size, device=device).to(dtype)
    left @ left
    seconds = []
    for _ in range(times):
        _synchronize(device)
        began = time.perf_counter()
        left @ left
        _synchronize(device)
        seconds.append(time.perf_counter() - began)
    return float(2 * size**3 / min(seconds))


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()

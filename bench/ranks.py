"""Seconds of an update by one process and by two ranks on the CPU: the batch of `bench.learner`.

    python -m bench.ranks                            # its model of 1 M weights
    python -m bench.ranks --shape smollm2-135m --rounds 1

Each process computes with one thread, so two ranks need two idle cores; the line says how busy the machine was.
"""

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

import torch
from bench.learner import groups_of, model_of
from bench.shapes import CACHE, checkpoint

from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.ranks import Ranks
from nat.backend.training.reference import Reference
from nat.wire.training import TrainingConfig

RANKS = (1, 2)
HEAD = """\
| weights | ranks | update, s | spread, s | row tokens per second | start of the ranks, s | load |
|---|---|---:|---:|---:|---:|---:|"""


def main() -> None:
    """Print a line for LoRA and for all weights, with one rank and with two."""
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=main.__doc__)
    parser.add_argument("--shape", default="", help="another model, by its name in bench.shapes")
    parser.add_argument("--rounds", type=int, default=5, help="updates of each case, after one that is not counted")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint(options.shape, "float32", cache=CACHE) if options.shape else model_of(Path(folder))
        for lora in (LoraSettings(16), None):
            for count in RANKS:
                print(measured(path, lora, count, options.rounds), flush=True)


def measured(path: Path, lora: LoraSettings | None, count: int, rounds: int) -> str:
    """Time updates of one learner."""
    load = os.getloadavg()[0]
    loaded, groups = load_model(path, device="cpu", lora=lora), groups_of(Random(0), "update")
    rank = partial(load_model, path, lora=lora)
    resolved, seconds = resolve(TrainingConfig(max_logprob_difference=1e9, max_kl=None)), list[float]()
    with tempfile.TemporaryDirectory() as logs:
        ranks = Ranks(rank, "cpu", count, logs=Path(logs)) if count > 1 else None
        began = time.perf_counter()
        try:
            if ranks is not None:
                ranks.start()
            start = time.perf_counter() - began
            learner = Learner(loaded, Reference(loaded, lambda: load_model(path).model), ranks=ranks)
            for _ in range(rounds + 1):
                began = time.perf_counter()
                metrics = learner.update(groups, resolved)
                seconds.append(time.perf_counter() - began)
        finally:
            if ranks is not None:
                ranks.stop()
    usual, spread = median(seconds[1:]), max(seconds[1:]) - min(seconds[1:])
    figures = f"{usual:.2f} | {spread:.2f} | {metrics['row_tokens'] / usual:,.0f} | {start:.1f}"
    return f"| {'LoRA, rank 16' if lora else 'all'} | {count} | {figures} | {load:.1f} |"


if __name__ == "__main__":
    main()

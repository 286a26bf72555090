"""Tokens per second and memory of the embedded backend and of vLLM: same checkpoint, load, dtype and cores, one run.

    python -m bench.sampler                              # all cases
    python -m bench.sampler --case 135m --engine ours    # some of them, without vLLM

The load generator runs beside the server on the same machine. Clients ask as `nat finetune` does, with log
probabilities and token ids. Each engine runs the cases of a checkpoint one after the other in one server; the memory is
the most that the server and its children held while the case ran.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from bench.load import Load, play
from bench.process_tree import Usage, measured
from bench.report import machine, now
from bench.servers import Limits, Server, our_backend, vllm
from bench.shapes import CACHE, DTYPES, SHAPES, checkpoint
from conformance.engines.vllm import vllm_python

Start = Callable[[Path, Limits], AbstractContextManager[Server]]
ENGINES = ["ours", "vllm"]
LONG_SECONDS = 30.0
"""A case that takes longer is measured once."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    shape: str
    dtype: str
    load: Load

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}: {self.load}"


_REAL = (Load(1, 512, 64), Load(16, 512, 64), Load(64, 128, 32), Load(4, 300, 32, turns=8))
CASES = (
    *(Case("tiny", "float32", Load(chats, 16, 32, requests=max(2, 24 // chats))) for chats in (1, 16, 64, 128)),
    *(Case("smollm2-135m", dtype, load) for dtype in DTYPES for load in _REAL),
    *(Case("qwen2.5-0.5b", "bfloat16", load) for load in (Load(1, 512, 32), Load(8, 512, 32), Load(16, 128, 32))),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.sampler", description=main.__doc__)
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    parser.add_argument("--engine", choices=ENGINES, nargs="+", default=ENGINES)
    parser.add_argument("--vllm", type=Path, help="interpreter of an environment with vLLM; default: one is made")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a case; the fastest counts")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # else a terminated bench would leave its servers behind
    cases = [case for case in CASES if options.case in str(case)]
    if not cases:
        parser.error(f"no case contains {options.case!r}; there are\n" + "\n".join(map(str, CASES)))
    engines = _engines(options.engine, options.vllm)
    cells = "".join(f" {name}, tokens/s | {name}, MB | {name}, cores |" for name in engines)
    head = [f"| shape, dtype: chats |{cells} measured |"]
    head.append(f"|---|{'---:|' * (3 * len(engines))}---|")
    print(f"{machine()}\n\n" + "\n".join(head), flush=True)
    for (shape, dtype), of_model in groupby(cases, lambda case: (case.shape, case.dtype)):
        rows = _rows(shape, dtype, [case.load for case in of_model], engines, options.rounds)
        print("\n".join(rows), flush=True)


def _engines(names: list[str], python: Path | None) -> dict[str, Start]:
    engines: dict[str, Start] = {}
    if "ours" in names:
        engines["ours"] = our_backend
    if "vllm" in names:
        interpreter = vllm_python() if python is None else python
        engines["vLLM"] = lambda model, limits: vllm(model, limits, interpreter)
    return engines


def _rows(shape: str, dtype: str, loads: list[Load], engines: dict[str, Start], rounds: int) -> list[str]:
    """The lines of the table for one checkpoint."""
    began, model = now(), checkpoint(shape, dtype, cache=CACHE)
    limits = Limits(dtype, max(load.chats for load in loads), max(load.longest for load in loads) + 1)
    vocabulary = SHAPES[shape]().vocab_size
    used = []
    for name, start in engines.items():
        _tell(f"{shape}, {dtype}: {name} starts")
        used.append(_usages(start(model, limits), loads, vocabulary, rounds))
    rows = []
    for load, *usages in zip(loads, *used, strict=True):
        cells = "".join(f" {load.sampled / u.seconds:,.0f} | {u.peak_mb:,.0f} | {u.cores:.1f} |" for u in usages)
        rows.append(f"| {shape}, {dtype}: {load} |{cells} {began} |")
    return rows


def _usages(started: AbstractContextManager[Server], loads: list[Load], vocabulary: int, rounds: int) -> list[Usage]:
    """What a server used for the fastest round of each load."""
    with started as server:
        return [_best(server, load, vocabulary, rounds) for load in loads]


def _best(server: Server, load: Load, vocabulary: int, rounds: int) -> Usage:
    """The fastest round: other work on the machine only adds time. The memory is the most of all rounds."""
    play(server, replace(load, chats=1, answer=2, requests=1, turns=1), seed="warm-up", vocabulary=vocabulary)
    found: list[Usage] = []
    for number in range(rounds):
        with measured(server.pid) as usage:
            play(server, load, seed=str(number), vocabulary=vocabulary)
        found.append(usage)
        _tell(f"  {load}: {usage.seconds:.1f} s, {usage.peak_mb:,.0f} MB, {usage.cores:.1f} cores")
        if usage.seconds > LONG_SECONDS:
            break
    return replace(min(found, key=lambda usage: usage.seconds), peak_mb=max(usage.peak_mb for usage in found))


def _tell(text: str) -> None:
    """Show progress, since a case takes up to minutes; the table has stdout for itself."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

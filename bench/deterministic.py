"""What `deterministic: true` costs: answers of the embedded engine, and an update, with and without it.

    python -m bench.deterministic                        # all cases
    python -m bench.deterministic --shape tiny

Processor seconds of one thread, so that other work on the machine counts for little; the rounds of both alternate, and
the fastest of each counts.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from random import Random

import torch
from bench.learner import groups_of
from bench.report import machine, now
from bench.shapes import CACHE, SHAPES, checkpoint

from nat.backend.algorithms.registry import resolve
from nat.backend.inference.engine import Engine
from nat.backend.inference.sequence import Delta, Request, SamplingParams, Sequence
from nat.backend.model_loader import DTypeName, load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.training import TrainingConfig

CASES: dict[tuple[str, DTypeName], int] = {
    ("tiny", "float32"): 64,
    ("smollm2-135m", "float32"): 64,
    ("smollm2-135m", "bfloat16"): 64,
}
"""Tokens of the prompts; answers have a quarter of them."""
CHATS = (1, 8, 32)
HEAD = ["| shape, dtype: what | default, s | deterministic, s | factor | measured |", "|---|---:|---:|---:|---|"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.deterministic", description=main.__doc__)
    parser.add_argument("--shape", default="", help="only shapes whose name and dtype contain this text")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a case; the fastest counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}\n\n" + "\n".join(HEAD), flush=True)
    for (shape, dtype), prompt in CASES.items():
        if options.shape in f"{shape} {dtype}":
            print("\n".join(answers(shape, dtype, prompt, options.rounds)), flush=True)
            print(update(shape, dtype, options.rounds), flush=True)


def answers(shape: str, dtype: DTypeName, prompt: int, rounds: int) -> list[str]:
    """A row for each number of chats at the same time."""
    model = checkpoint(shape, dtype, cache=CACHE)
    loaded = [load_model(model, device="cpu", dtype=dtype, deterministic=each) for each in (False, True)]
    engines, found = [Engine(each, policy_version="bench@0") for each in loaded], []
    for chats in CHATS:
        times = in_turn([partial(play, engine, chats, prompt) for engine in engines], rounds)
        found.append(row(f"{shape}, {dtype}: {chats}, {prompt} in, {prompt // 4} out", times))
    return found


def play(engine: Engine, chats: int, prompt: int) -> None:
    """Answer prompts that no cache has, all at once."""
    engine.forget()
    random = Random(0)
    for seed in range(chats):
        ids = [random.randrange(engine.loaded.vocab_size) for _ in range(prompt)]
        params = SamplingParams(max_tokens=prompt // 4, seed=seed)
        engine.add(Request([Sequence(0, ids, params)], _Nobody()))
    while engine.has_work:
        engine.step()


class _Nobody:
    """A listener that ignores what it is told."""

    def on_deltas(self, deltas: list[Delta]) -> None: ...
    def on_finished(self) -> None: ...
    def on_failed(self, error: BaseException) -> None: ...


def update(shape: str, dtype: DTypeName, rounds: int) -> str:
    """The row of an update."""
    model = checkpoint(shape, dtype, cache=CACHE)
    groups = groups_of(Random(0), "update", SHAPES[shape]().vocab_size)[: 24 if shape == "tiny" else 2]
    resolved = resolve(TrainingConfig(max_logprob_difference=100.0, max_served_difference=100.0))
    runs = []
    for deterministic in (False, True):
        loaded = load_model(model, device="cpu", dtype=dtype, deterministic=deterministic)
        learner = Learner(loaded, Reference(loaded, lambda: load_model(model, device="cpu", dtype=dtype).model))
        runs.append(lambda own=learner: own.update(groups, resolved))

    def in_mode(number: int) -> None:
        torch.use_deterministic_algorithms(mode=bool(number))
        runs[number]()

    times = in_turn([lambda: in_mode(0), lambda: in_mode(1)], rounds)
    torch.use_deterministic_algorithms(mode=False)
    return row(f"{shape}, {dtype}: an update of {8 * len(groups)} rows", times)


def in_turn(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """The seconds of the fastest round of each."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for own, run in zip(times, runs, strict=True):
            began = time.process_time()
            run()
            own.append(time.process_time() - began)
    return [min(own) for own in times]


def row(what: str, times: list[float]) -> str:
    """A line of the table."""
    usual, deterministic = times
    return f"| {what} | {usual:.3f} | {deterministic:.3f} | {deterministic / usual:.2f} | {now()} |"


if __name__ == "__main__":
    main()

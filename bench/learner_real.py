"""Tokens per second and peak memory of an update at a real model's shape, beside plain transformers.

    python -m bench.learner_real                                        # all lines
    python -m bench.learner_real 8x512 --dtypes float32 --weights full  # two lines of it

Each side runs in its own process, one after the other, on the same rows, in which every token but the first was
sampled. The third of three updates is measured, since a run makes many: each part of it has memory by then. Plain
transformers sums up the gradients of micro-batches of 1024 tokens, clips them, and takes AdamW's step. Ours chooses its
micro-batches, and adds the loss of GRPO, entropies, metrics, the copy for a failed update, and the check that the
sampler has the new weights.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from bench.report import now
from bench.shapes import DTYPES, checkpoint
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from nat.backend.__main__ import keep_free_pages
from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow

SIDES = ("ours", "transformers")
SIZES = ["1x8", "2x50", "8x125", "8x512", "8x2048", "2x4096"]
"""Rows of a batch, and tokens of a row."""
RANK = 16
MICRO_BATCH = 1024
"""Tokens of a micro-batch of plain transformers; with more or fewer it was slower where this was written."""
HEAD = (
    "| update | tokens/s | transformers, tokens/s | CPU s | transformers, CPU s | MB | transformers, MB | measured |",
    "|---|---:|---:|---:|---:|---:|---:|---|",
)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    shape: str
    rows: int
    length: int
    dtype: str
    weights: str
    checkpointing: bool

    def __str__(self) -> str:
        again = ", checkpointing" if self.checkpointing else ""
        return f"{self.rows} x {self.length}, {self.dtype}, {self.weights}{again}"


def main() -> None:
    """Measure every combination of the arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.learner_real", description=__doc__)
    parser.add_argument("sizes", nargs="*", default=SIZES, metavar="ROWSxLENGTH")
    parser.add_argument("--shape", default="smollm2-135m")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--weights", nargs="+", choices=["full", "LoRA"], default=["full", "LoRA"])
    parser.add_argument("--checkpointing", nargs="+", type=json.loads, default=[False, True], metavar="true|false")
    options = parser.parse_args()
    print("\n".join(HEAD))
    for size, dtype, weights, again in product(options.sizes, options.dtypes, options.weights, options.checkpointing):
        rows, length = map(int, size.split("x"))
        print(_line(Case(options.shape, rows, length, dtype, weights, again)), flush=True)


def _line(case: Case) -> str:
    began, (ours, plain) = now(), (measured(side, case) for side in SIDES)
    cells = [f"{case.rows * case.length / found['seconds']:,.0f}" for found in (ours, plain)]
    cells += [f"{found['cpu_seconds']:.1f}" for found in (ours, plain)]
    cells += [f"{found['peak_mb']:,.0f}" for found in (ours, plain)]
    return f"| {' | '.join([str(case), *cells, began])} |"


def measured(side: str, case: Case) -> dict[str, float]:
    """Run one side of a case in its own process."""
    checkpoint(case.shape, case.dtype)
    command = [sys.executable, "-m", "bench.learner_real", "--run", side, json.dumps(asdict(case))]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return found


def run(side: str, case: Case) -> None:
    """Train three times on the rows of the case, and print what the last time took."""
    random = Random(0)
    vocabulary = load_vocabulary(case)
    rows = [[random.randrange(1, vocabulary) for _ in range(case.length + 1)] for _ in range(case.rows)]
    train = (_ours if side == "ours" else _plain)(case)
    for _ in range(2):
        train(rows)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    train(rows)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mb": after.ru_maxrss / 1024}))


def load_vocabulary(case: Case) -> int:
    """Size of the model's vocabulary."""
    config = json.loads((checkpoint(case.shape, case.dtype) / "config.json").read_text())
    return int(config["vocab_size"])


def _ours(case: Case) -> Callable[[list[list[int]]], object]:
    keep_free_pages()  # as the backend does
    lora = LoraSettings(RANK) if case.weights == "LoRA" else None
    loaded = load_model(checkpoint(case.shape, case.dtype), device="cpu", dtype=case.dtype, lora=lora)  # type: ignore[arg-type]  # the choices are its names
    learner = Learner(loaded, Reference(loaded, lambda: loaded.model))
    config = TrainingConfig(
        advantage="given",
        normalize_advantages=False,
        gradient_checkpointing=case.checkpointing,
        max_logprob_difference=1e9,
    )

    def train(rows: list[list[int]]) -> object:
        return learner.update([_group(number, row) for number, row in enumerate(rows)], resolve(config))

    return train


def _group(number: int, row: list[int]) -> TrainingGroup:
    span = Span(start=1, stop=len(row), logprobs=[-10.0] * (len(row) - 1))
    sampled = TrainingRow(token_ids=row, spans=[span])
    return TrainingGroup(id=str(number), rollouts=[TrainingRollout(reward=0.0, advantage=1.0, rows=[sampled])])


def _plain(case: Case) -> Callable[[list[list[int]]], object]:
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint(case.shape, case.dtype), dtype=DTYPES[case.dtype])
    if case.weights == "LoRA":
        config = LoraConfig(r=RANK, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, config)
    model.train()
    if case.checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)
    micro_batch_rows = max(1, MICRO_BATCH // case.length)

    def train(rows: list[list[int]]) -> None:
        optimizer.zero_grad()
        token_ids = torch.tensor(rows)
        for part in torch.split(token_ids, micro_batch_rows):
            _loss(model, part, len(rows)).backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()

    return train


def _loss(model: nn.Module, token_ids: Tensor, rows: int) -> Tensor:
    logits: Tensor = model(input_ids=token_ids[:, :-1], use_cache=False).logits
    losses = F.cross_entropy(logits.float().flatten(0, 1), token_ids[:, 1:].flatten(), reduction="sum")
    return losses / (rows * (token_ids.shape[1] - 1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], Case(**json.loads(sys.argv[3])))
    else:
        main()

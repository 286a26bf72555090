"""The most memory of sampling and training, beside what `nat finetune --dry_run` predicts for it.

    python -m bench.memory
    python -m bench.memory --case tiny      # some of its lines

Each case runs in its own process: it loads a model, samples and trains twice, as a backend does in two epochs.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import torch
from bench.gpu_case import Answered
from bench.report import now
from bench.shapes import checkpoint

import nat.backend.serve  # noqa: F401 - a backend has all of it in memory
from nat.backend.algorithms.registry import resolve
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import Request, SamplingParams, Sequence
from nat.backend.inference.worker import Worker
from nat.backend.lora import LoraSettings
from nat.backend.memory import available_bytes
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.sizing.memory import DType, PredictedMemory, Setup, Workload, predict
from nat.sizing.shape import ModelShape
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow

EPOCHS = 2
MAX_NUM_SEQS = 64
_TIMEOUT = 600
_MB = 2**20
HEAD = (
    "| shape, dtype, weights: chats; rows | predicted, MB | peak, MB | difference | measured |",
    "|---|---:|---:|---:|---|",
)


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    shape: str
    dtype: DType
    rank: int | None
    chats: int
    prompt: int
    answer: int
    rows: int
    length: int
    load_in_4bit: bool = False
    training: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = "".join(f", {key}: {json.dumps(value)}" for key, value in self.training.items())
        return (
            f"{self.shape}, {self.dtype}, {self.setup.title}{settings}: {self.chats} x {self.prompt + self.answer}; "
            f"{self.rows} x {self.length}"
        )

    @property
    def setup(self) -> Setup:
        return Setup("cpu", self.dtype, self.rank, load_in_4bit=self.load_in_4bit, **self.training)

    @property
    def workload(self) -> Workload:
        chat = self.prompt + self.answer
        return Workload(
            chats=self.chats,
            chat_tokens=chat,
            row_tokens=self.length,
            step_tokens=self.rows * self.length,
            epoch_tokens=self.chats * chat,
        )


CASES = (
    Case("tiny", "float32", None, 16, 32, 32, 32, 64),
    Case("tiny", "float32", 16, 16, 256, 32, 8, 1024),
    Case("stories-15m", "float32", None, 16, 64, 16, 16, 256),
    Case("stories-15m", "bfloat16", 16, 8, 256, 16, 8, 512),
    Case("smollm2-135m", "float32", None, 8, 64, 8, 8, 128),
    Case("smollm2-135m", "float32", None, 4, 256, 4, 2, 1024, training={"gradient_checkpointing": True}),
    Case("smollm2-135m", "bfloat16", None, 8, 64, 8, 4, 256),
    Case("smollm2-135m", "float32", 16, 8, 64, 8, 4, 512),
    Case("smollm2-135m", "bfloat16", 16, 4, 256, 4, 2, 1024),
    Case("smollm2-135m", "bfloat16", 16, 4, 64, 4, 4, 512, load_in_4bit=True),
    Case("smollm2-360m", "bfloat16", None, 4, 64, 4, 2, 256, training={"optimizer_bits": 8}),
    Case("qwen2.5-0.5b", "float32", 16, 4, 64, 4, 2, 256),
    Case("qwen2.5-0.5b", "bfloat16", 16, 4, 64, 4, 2, 512),
    Case("qwen2.5-0.5b", "bfloat16", 16, 4, 64, 4, 2, 256, load_in_4bit=True),
)


def main() -> None:
    """Measure the cases."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=main.__doc__)
    parser.add_argument("--case", default="", metavar="TEXT", help="only the cases whose line contains this text")
    parser.add_argument("--parts", action="store_true", help="print also what each prediction consists of")
    options = parser.parse_args()
    print("\n".join(HEAD))
    for case in (case for case in CASES if options.case in str(case)):
        began, (peaks, expected) = now(), measured(case)
        peak = max(peaks.values())
        cells = [f"{expected.total / _MB:,.0f}", f"{peak:,.0f}", f"{expected.total / _MB / peak - 1:+.0%}", began]
        line = f"| {' | '.join([str(case), *cells])} |"
        print(line, flush=True)
        if options.parts:
            print("  predicted", {name: round(count / _MB) for name, count in expected.parts.items()}, file=sys.stderr)
            print("  measured", {name: round(count) for name, count in peaks.items()}, file=sys.stderr)


def measured(case: Case) -> tuple[dict[str, float], PredictedMemory]:
    """The most MB of each phase of a process of its own, and the prediction."""
    folder = checkpoint(case.shape, case.dtype)
    command = [sys.executable, "-m", "bench.memory", "--run", json.dumps(asdict(case))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(output.splitlines()[-1])
    expected = predict(ModelShape.of_folder(folder), case.setup, case.workload, free=found["available"])
    return found["peaks"], expected


def run(case: Case) -> None:
    """Load, sample and train, and print the most MB of each."""
    peaks: dict[str, float] = {}
    available = available_bytes(torch.device("cpu"))
    lora = None if case.rank is None else LoraSettings(case.rank)
    folder = checkpoint(case.shape, case.dtype)
    loaded = load_model(folder, device="cpu", dtype=case.dtype, lora=lora, load_in_4bit=case.load_in_4bit)
    _note(peaks, "loading")
    worker = Worker(
        Engine(loaded, policy_version="bench@0", limits=EngineLimits.of(MAX_NUM_SEQS, None, None, loaded.device))
    )
    learner, random = Learner(loaded, Reference(loaded, lambda: loaded.model)), Random(0)
    for epoch in range(1, EPOCHS + 1):
        _sample(worker, loaded, case, random)
        _note(peaks, f"sampling {epoch}")
        _train(worker, learner, case, random, epoch)
        _note(peaks, f"training {epoch}")
    print(json.dumps({"available": available, "peaks": peaks}))


def _sample(worker: Worker, loaded: LoadedModel, case: Case, random: Random) -> None:
    answers = [Answered() for _ in range(case.chats)]
    for number, answer in enumerate(answers):
        params = SamplingParams(max_tokens=case.answer, ignore_eos=True, seed=number)
        worker.submit(Request([Sequence(0, _ids(random, case.prompt, loaded), params)], answer))
    for answer in answers:
        if not answer.wait(_TIMEOUT) or answer.error is not None:
            raise SystemExit(f"{case} was not sampled: {answer.error or 'it took too long'}")


def _train(worker: Worker, learner: Learner, case: Case, random: Random, epoch: int) -> None:
    """An update with one optimizer step, on rows whose second half was sampled."""
    given = {"advantage": "given", "normalize_advantages": False, "max_logprob_difference": 1e9, "steps_per_batch": 1}
    loaded = worker.loaded
    config, sampled = TrainingConfig.model_validate({**given, **case.training}), case.length // 2
    span = Span(start=case.length - sampled, stop=case.length, logprobs=[-10.0] * sampled)
    groups = []
    for number in range(case.rows):
        row = TrainingRow(token_ids=_ids(random, case.length, loaded), spans=[span])
        groups.append(TrainingGroup(id=str(number), rollouts=[TrainingRollout(reward=0.0, advantage=1.0, rows=[row])]))
    worker.run_exclusive(lambda: learner.update(groups, resolve(config))).result()
    worker.run_exclusive(lambda: worker.serve(f"bench@{epoch}")).result()


def _ids(random: Random, count: int, loaded: LoadedModel) -> list[int]:
    return [random.randrange(5, loaded.vocab_size) for _ in range(count)]


def _note(peaks: dict[str, float], phase: str) -> None:
    """Read the most memory since the last phase, and begin anew."""
    [peak] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    peaks[phase] = int(peak) / 1024
    Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(Case(**json.loads(sys.argv[2])))
    else:
        main()

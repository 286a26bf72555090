"""What a long run takes: 3000 tiny epochs of the harness, and 1000 jobs of the backend.

The harness plays 2 examples x 4 generations in each epoch against a stub of the backend in another process, with
validations, journal, files and plot as in any run. The backend, with a model of two layers, gets jobs of 8 rows.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import yaml
from pydantic import SecretStr

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli import event_loop
from nat.data_models.component_ref import LLMRef
from nat.data_models.finetuning import FinetuneRunConfig
from nat.data_models.function import FunctionBaseConfig
from nat.finetuning.progress import RunProgress
from nat.finetuning.runtime import run_finetuning
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.local.client import BackendClient
from nat.plugins.local.llm import LocalModelConfig, LocalProviderInfo
from nat.plugins.local.process import running_backend
from nat.registry.decorators import register_function, register_llm_provider
from nat.runs.records import EpochRecord
from nat.wire.serving import ServeOptions
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout, TrainingRow

EPOCHS = {"harness": 3000, "backend": 1000}
MARKS = (10, 100, 1000, 3000)
EXAMPLES, GENERATIONS = 2, 4


class Sample(NamedTuple):
    """After an epoch."""

    seconds: float
    resident: float
    """MB."""
    descriptors: int
    threads: int
    files: int
    """Below the folder of runs and the one for temporary files."""
    written: float
    """MB of these."""


Samples = list[Sample]


class StubConfig(OpenAIModelConfig, name="bench_stub"):
    """Configuration of the stub backend."""


class CoinConfig(FunctionBaseConfig, name="bench_coin"):
    """Configuration of an agent that makes one call."""

    llm: LLMRef


class Watch(RunProgress):
    """Take a sample after each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.samples: Samples = []

    def epoch_finished(self, record: EpochRecord) -> None:
        self.samples.append(sample(os.getpid(), self.folder, record.epoch + 1))


@register_llm_provider(config_type=StubConfig)
async def stub(config: StubConfig, builder: Builder) -> AsyncGenerator[LocalProviderInfo, None]:
    """Start the stub backend as a child process."""
    assert builder.run_dir is not None, "it is a run"
    command, log = (sys.executable, "-m", "bench.stub_backend"), builder.run_dir / "backend.log"
    options = ServeOptions(model=Path("stub"), output_dir=builder.run_dir)
    async with running_backend(options, log_path=log, startup_timeout=60, command=command) as backend:
        key = SecretStr(backend.api_key)
        served = config.model_copy(update={"base_url": f"{backend.base_url}/v1", "api_key": key})
        block = LocalModelConfig(model=Path("stub"))
        yield LocalProviderInfo(config=served, description="stub", backend=backend, block=block)


@register_function(config_type=CoinConfig)
async def coin(config: CoinConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """An agent that makes one call."""
    client: Any = await builder.get_llm(config.llm, wrapper_type="openai")
    asked: dict[str, int] = {}

    async def answer(question: str) -> str:
        await client.chat.completions.create(model=client.model_name, messages=[{"role": "user", "content": question}])
        asked[question] = count = asked.get(question, 0) + 1
        return "right" if count % 2 else "wrong"

    yield FunctionInfo.from_fn(answer)


def main() -> None:
    """Print one row for the harness and one for the backend."""
    print("| process | epoch | MB resident | ms an epoch | descriptors | threads | files | MB on disk |")
    print(f"|---|---{'|---:' * 6}|")
    for title in EPOCHS:
        command = [sys.executable, "-m", "bench.epochs", title]
        print(subprocess.check_output(command, text=True), end="", flush=True)


def rows(title: str, samples: Samples) -> Iterator[str]:
    """A line for each mark, with the median time of up to twenty epochs before it."""
    for mark in (mark for mark in MARKS if mark <= len(samples)):
        seen = samples[mark - 1]
        counted = f"{seen.descriptors} | {seen.threads} | {seen.files} | {seen.written:.1f}"
        yield f"| {title} | {mark} | {seen.resident:.0f} | {_ms(samples[:mark])} | {counted} |"


def _ms(samples: Samples) -> str:
    seconds = [after.seconds - before.seconds for before, after in pairwise(samples[-20:])]
    return f"{1000 * median(seconds):.0f}"


async def harness(folder: Path, epochs: int) -> Samples:
    """Measure a run of the harness against the stub."""
    rows = folder / "rows.json"
    rows.write_text(json.dumps([{"id": str(n), "question": f"{n}?", "answer": "right"} for n in range(EXAMPLES)]))
    config = {
        "llms": {"student": {"_type": "bench_stub", "model_name": "stub", "base_url": "http://127.0.0.1:1/v1"}},
        "workflow": {"_type": "bench_coin", "llm": "student"},
        "eval": {
            "general": {"dataset": {"_type": "json", "file_path": str(rows)}},
            "evaluators": {"match": {"_type": "exact_match"}},
        },
        "trajectory_builders": {"builder": {"_type": "local_traj_builder", "num_generations": GENERATIONS}},
        "trainer_adapters": {"adapter": {"_type": "local_trainer_adapter", "llm": "student"}},
        "trainers": {"trainer": {"_type": "local_trainer"}},
        "finetuning": {
            "enabled": True,
            "trainer": "trainer",
            "trajectory_builder": "builder",
            "trainer_adapter": "adapter",
            "reward_function": {"name": "match"},
            "num_epochs": epochs,
            "output_dir": str(folder / "runs"),
        },
    }
    path, watch = folder / "config.yml", Watch(folder)
    path.write_text(yaml.safe_dump(config))
    await run_finetuning(FinetuneRunConfig(config_file=path, validation_dataset=str(rows)), progress=watch)
    return watch.samples


async def backend(folder: Path, epochs: int) -> Samples:
    """Measure jobs on the real backend, one after another."""
    from bench.learner import model_of

    random = Random(0)
    samples: Samples = []
    options = ServeOptions(model=model_of(folder), port=0, threads=1, output_dir=folder / "out")
    log = folder / "backend.log"
    async with (
        running_backend(options, log_path=log, startup_timeout=120) as process,
        BackendClient(process.base_url, process.api_key) as client,
    ):
        for number in range(epochs):
            await client.submit(_job(random, number))
            state = await client.job(f"job-{number}", wait=20)
            assert state.status == "completed", state
            samples.append(sample(process.pid, folder, number + 1))
    return samples


def _job(random: Random, number: int) -> TrainingJob:
    """Make a job with invented tokens; the bench measures only memory and time."""
    config = TrainingConfig(max_logprob_difference=1e6, max_served_difference=1e6)
    rows = [[random.randrange(500) for _ in range(40)] for _ in range(8)]
    span = Span(start=20, stop=40, logprobs=[-6.0] * 20)
    rollouts = [
        TrainingRollout(reward=place % 2, rows=[TrainingRow(token_ids=row, spans=[span])])
        for place, row in enumerate(rows)
    ]
    groups = [TrainingGroup(id=str(place), rollouts=rollouts[place : place + 4]) for place in (0, 4)]
    return TrainingJob(id=f"job-{number}", groups=groups, config=config)


def sample(pid: int, folder: Path, epoch: int) -> Sample:
    """What a process has now; files are counted at the marks only."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if epoch in MARKS else []
    return Sample(
        time.perf_counter(),
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        len(list(Path(f"/proc/{pid}/task").iterdir())),
        len(sizes),
        sum(sizes) / 2**20,
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        logging.disable(logging.WARNING)
        with tempfile.TemporaryDirectory() as name:
            measured, title = {"harness": harness, "backend": backend}, sys.argv[1]
            tempfile.tempdir = name  # so that temporary files are counted, too
            samples = event_loop.run(measured[title](Path(name), EPOCHS[title]))
            print(*rows(title, samples), sep="\n", flush=True)

"""How far the numbers of an update are apart if other threads or other instructions of the processor compute it.

    python -m bench.rounding                  # all cases; the first one downloads SmolLM2-135M, 98 MB
    python -m bench.rounding --case tic       # cases whose name contains this text

Each case is a short run with one thread, whose updates are replayed (`nat replay`) in ways that round otherwise. A row
has the largest gap of each stage, relative to the size that rounding is judged by. `nat.runs.replayed` has bounds from
it.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from bench.report import machine, now
from examples.real.packages import model

from nat.runs.journal import Journal, reading
from nat.runs.replayed import STAGES

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".tmp" / "rounding"
NAT = (sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()")
MEASURED = STAGES[1:]
"""Rewards are not computed."""
THREADS = "2 threads"
WAYS: Mapping[str, Mapping[str, str]] = {
    "as recorded": {},
    THREADS: {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "SSE": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
HEAD = ["| run: way | updates | " + " | ".join(MEASURED) + " |", "|---|---:|" + "---:|" * len(MEASURED)]


@dataclass(frozen=True)
class Case:
    """A short run of an example."""

    name: str
    folder: str
    config: str
    llm: str
    settings: Mapping[str, str]

    def options(self) -> list[str]:
        """Those of `nat finetune`."""
        own = {
            f"llms.{self.llm}.threads": "1",
            f"llms.{self.llm}.keep_last": "1000",
            f"llms.{self.llm}.save_every": "1",
            "trajectory_builders.rounding": '{"_type": "local_traj_builder", "examples_per_epoch": 8}',
            "finetuning.trajectory_builder": "rounding",
            "finetuning.num_epochs": "3",
            "finetuning.run_configuration": "null",
            "finetuning.output_dir": str(FOLDER / self.name.replace(", ", "-")),
            **self.settings,
        }
        return [f"--config_file={self.config}", *(word for key, value in own.items() for word in ("-o", key, value))]


def cases() -> Iterator[Case]:
    """The example's model, and a real one with all weights and with an adapter, in both precisions."""
    for dtype in ("float32", "bfloat16"):
        game = {"llms.player.dtype": dtype}
        yield Case(f"tic-tac-toe, {dtype}", ".", "examples/tic_tac_toe/configs/finetune.yml", "player", game)
        real = {"llms.student.dtype": dtype}
        yield Case(f"SmolLM2-135M, {dtype}", "examples/real/city", "config.yml", "student", real)
        lora = real | {"llms.student.lora.rank": "16"}
        yield Case(f"SmolLM2-135M with LoRA, {dtype}", "examples/real/city", "config.yml", "student", lora)


def main() -> None:
    """Print the table as it grows."""
    parser = argparse.ArgumentParser(prog="python -m bench.rounding", description=main.__doc__)
    parser.add_argument("--case", default="", help="only cases whose name contains this text")
    chosen = parser.parse_args().case
    model()
    nat("-m", "examples.real.city.make_data", command=(sys.executable,))
    print(f"{machine()}, {now()}\n\n" + "\n".join(HEAD), flush=True)
    for case in cases():
        if chosen in case.name:
            run = Path(json.loads(nat("finetune", "--json", *case.options(), folder=case.folder))["run_dir"])
            for way in WAYS:
                print(row(case, run, way), flush=True)


def row(case: Case, run: Path, way: str) -> str:
    """The largest gap of each stage over all updates of a run."""
    set_threads(run, case.llm, 2 if way == THREADS else 1)
    with reading(run) as journal:
        epochs = [job.epoch + 1 for job in journal.jobs() if job.steps]
    most = dict.fromkeys(MEASURED, 0.0)
    for epoch in epochs:
        words = ("replay", str(run), "--epoch", str(epoch), "--json", "--trust")
        for each in json.loads(nat(*words, folder=case.folder, environment=WAYS[way]))["compared"]:
            if each["gap"] is not None:
                most[each["stage"]] = max(most[each["stage"]], each["gap"])
    return f"| {case.name}: {way} | {len(epochs)} | " + " | ".join(f"{gap:.1g}" for gap in most.values()) + " |"


def set_threads(run: Path, llm: str, threads: int) -> None:
    """Change the recorded number, as if another machine replayed."""
    with Journal.open(run) as journal:
        config = yaml.safe_load(journal.info().config_text)
        config["llms"][llm]["threads"] = threads
        journal.record_config(yaml.safe_dump(config))


def nat(
    *words: str, folder: str = ".", environment: Mapping[str, str] | None = None, command: Sequence[str] = NAT
) -> str:
    """Run a command of `nat`, which may find differences, and give what it prints."""
    done = subprocess.run(
        [*command, *words],
        cwd=ROOT / folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1} or (words[0] != "-m" and not done.stdout):
        raise SystemExit(f"{words} ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main()

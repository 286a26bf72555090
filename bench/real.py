"""What a real pretrained model learns from the tasks of `examples/real`.

    python -m bench.real --seeds 0          # six tasks with nothing set; hours

Each run is `nat finetune` in a process of its own, in the task's folder. A finished run is kept in `--folder`, where
the table is, too: stop the bench at any time, start it again, and it goes on with what is missing.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import machine, now
from conformance.environments import outside, python_of
from examples.real.packages import model

from nat.files import write_text

ROOT = Path(__file__).parents[1]
TASKS = ("city", "sentiment", "facts", "puzzle", "conversation", "capitals")
GENERATED = ("puzzle",)
"""Tasks whose data needs a package of the environment `real`."""
HEAD = (
    "| task | seed | before | after | difference | low | high | verdict | seconds | rollouts | measured |\n"
    "|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---|"
)


@dataclass(frozen=True)
class Case:
    """One run."""

    task: str
    seed: int

    @property
    def folder(self) -> Path:
        """Where the task is."""
        return ROOT / "examples" / "real" / self.task


@dataclass(frozen=True)
class Result:
    """The figures of a finished run."""

    before: float
    after: float
    interval: tuple[float, float]
    verdict: str
    seconds: float
    rollouts: int
    when: str
    """Date and load at its start."""

    def row(self, case: Case) -> str:
        """Format the run as a line of the table."""
        low, high = self.interval
        return (
            f"| {case.task} | {case.seed} | {self.before:.3f} | {self.after:.3f} "
            f"| {self.after - self.before:+.3f} | {low:+.3f} | {high:+.3f} | {self.verdict} | {self.seconds:.0f} "
            f"| {self.rollouts} | {self.when} |"
        )


def main() -> None:
    """Run what is missing, and print the table as it grows."""
    parser = argparse.ArgumentParser(prog="python -m bench.real", description=__doc__)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--set", nargs=2, action="append", default=[], help="A key and a value of the YAML.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".tmp" / "real" / "cases")
    options = parser.parse_args()
    folder = options.folder.resolve()
    for task in options.tasks:
        python = python_of("real") if task in GENERATED else sys.executable  # which has pip, to download sentences
        subprocess.run([python, "-m", f"examples.real.{task}.make_data"], cwd=ROOT, check=True)
    model()
    print(HEAD)
    rows = []
    for case in (Case(task, seed) for task in options.tasks for seed in options.seeds):
        own = folder / f"{case.task}-{case.seed}"
        result = kept_result(own) or _measured(case, own, options.set)
        if result is not None:
            rows.append(result.row(case))
            print(rows[-1], flush=True)
            write_text(folder / "table.md", "\n".join([machine(), "", HEAD, *rows, ""]))


def _command(case: Case, folder: Path, settings: Sequence[tuple[str, str]]) -> list[str | Path]:
    pairs = [*settings, ("finetuning.seed", str(case.seed)), ("finetuning.output_dir", str(folder / "runs"))]
    overrides = [part for key, value in pairs for part in ("-o", key, value)]
    nat = python_of("real").with_name("nat")
    return [nat, "--log-level", "warning", "finetune", "--json", "--config_file=config.yml", *overrides]


def kept_result(folder: Path) -> Result | None:
    """The figures of a case that was finished before."""
    file = folder / "result.json"
    if not file.exists():
        return None
    kept = json.loads(file.read_text())["result"]
    return Result(**kept | {"interval": tuple(kept["interval"])})


def _measured(case: Case, folder: Path, settings: Sequence[tuple[str, str]]) -> Result | None:
    """Run the case; None, with the reason in `log.txt`, if it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    command, when, began = _command(case, folder, settings), now(), time.monotonic()
    env = outside() | {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(
            command, cwd=case.folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True, check=False
        )
    if done.returncode:
        sys.stderr.write(f"{case.task}, seed {case.seed}: exit code {done.returncode}, see {folder / 'log.txt'}\n")
        return None
    result = result_of(json.loads(done.stdout.splitlines()[-1]), when, time.monotonic() - began)
    kept = {"command": shlex.join(map(str, command)), "machine": machine(), "result": vars(result)}
    write_text(folder / "result.json", json.dumps(kept, indent=1))
    for weights in (*folder.glob("runs/*/checkpoints"), *folder.glob("runs/*/model")):
        shutil.rmtree(weights, ignore_errors=True)  # gigabytes, which the figures do not need
    return result


def result_of(found: dict[str, Any], when: str, seconds: float) -> Result:
    """Read what `nat finetune --json` printed."""
    low, high = found["interval"]
    numbers = (found["before"], found["after"], (low, high), str(found["verdict"]), found.get("seconds", seconds))
    return Result(*numbers, found["rollouts"], when)


if __name__ == "__main__":
    main()

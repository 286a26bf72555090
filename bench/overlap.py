"""Epochs per minute and held-out reward of the example, with and without overlap of rollouts and training.

Each run trains tic-tac-toe by `nat finetune` in a process of its own; the settings take turns. Epochs per minute leave
out the start, the first epoch, validations and the export. The whole bench takes about forty minutes on two cores.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from nat.runs.journal import Journal

CONFIG = "examples/tic_tac_toe/configs/finetune.yml"
SETTINGS = (0, 1)
"""Values of `max_staleness`."""
HEAD = """\
| max_staleness | seed | epochs per minute | CPU s per epoch | held-out before | after | staleness | overlapped | load |
|---|---|---:|---:|---:|---:|---:|---:|---:|"""


@dataclass(frozen=True)
class Run:
    """One run's figures."""

    max_staleness: int
    seed: int
    epochs_per_minute: float
    cpu_per_epoch: float
    """CPU seconds of harness and backend per epoch, start and validations included."""
    before: float
    """Mean held-out reward before training."""
    after: float
    staleness: float
    """Mean age of the answers in updates."""
    overlapped: float
    """Share of the epochs' time in which both went on."""
    load: float
    """Load of the machine at the start."""

    def row(self) -> str:
        """Format the run as a line of the table."""
        return (
            f"| {self.max_staleness} | {self.seed} | {self.epochs_per_minute:.2f} | {self.cpu_per_epoch:.2f} "
            f"| {self.before:.3f} | {self.after:.3f} | {self.staleness:.2f} | {self.overlapped:.0%} | {self.load:.1f} |"
        )


def main() -> None:
    """Print a line for each run, and the means of both settings."""
    parser = argparse.ArgumentParser(prog="python -m bench.overlap", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="Runs of each setting.")
    parser.add_argument("--epochs", type=int, default=60, help="Epochs of a run.")
    options = parser.parse_args()
    print(HEAD)
    runs = []
    for seed in range(options.seeds):
        for max_staleness in SETTINGS[:: 1 if seed % 2 == 0 else -1]:
            runs.append(measure(max_staleness, seed, options.epochs))
            print(runs[-1].row(), flush=True)
    apart, beside = ([run for run in runs if run.max_staleness == value] for value in SETTINGS)
    speed = fmean(run.epochs_per_minute for run in beside) / fmean(run.epochs_per_minute for run in apart)
    rewards = " and ".join(f"{fmean(run.after for run in own):.3f}" for own in (apart, beside))
    print(f"\n{speed:.2f} times the epochs per minute; mean held-out reward after training: {rewards}")


def measure(max_staleness: int, seed: int, epochs: int, *more: str) -> Run:
    """Train once, with `more` options of `nat finetune`, and read the figures from the run's folder."""
    load, before = os.getloadavg()[0], _cpu_of_children()
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "finetuning.max_staleness": max_staleness,
            "finetuning.seed": seed,
            "finetuning.num_epochs": epochs,
            "finetuning.output_dir": folder,
        }
        overrides = [part for key, value in settings.items() for part in ("-o", key, str(value))]
        command = [str(Path(sys.executable).with_name("nat")), "finetune", f"--config_file={CONFIG}", *overrides]
        subprocess.run([*command, *more], check=True, stdout=subprocess.DEVNULL)
        lines = (Path(folder) / "training_metrics.jsonl").read_text().splitlines()
        summary = json.loads((Path(folder) / "summary.json").read_text())
        with Journal.open(Path(folder) / "latest", read_only=True) as journal:
            held_out = sum(record.seconds for record in journal.validations() if 0 < record.epoch < epochs)
    first, *_, last = (datetime.fromisoformat(json.loads(line)["timestamp"]) for line in lines)
    seconds = (last - first).total_seconds() - held_out
    played: list[dict[str, Any]] = [json.loads(line)["metrics"] for line in lines]
    return Run(
        max_staleness=max_staleness,
        seed=seed,
        epochs_per_minute=60 * (len(played) - 1) / seconds,
        cpu_per_epoch=(_cpu_of_children() - before) / len(played),
        before=summary["before"],
        after=summary["after"],
        staleness=fmean(metrics.get("drift/staleness", 0.0) for metrics in played),
        overlapped=sum(metrics.get("time/overlapped", 0.0) for metrics in played[1:]) / seconds,
        load=load,
    )


def _cpu_of_children() -> float:
    """CPU seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

"""What distillation reaches with a fifth of GRPO's rollouts: tic-tac-toe, from a teacher that GRPO has trained.

The teacher is trained first, by the example's hand-tuned YAML, unless `--teacher` names a model. Teacher and students
play the same 300 held-out games. Each run is `nat finetune` in a process of its own, with nothing set under `training`
but the algorithm.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.defaults import ROLLOUTS, Case, trained

EXAMPLE = Path("examples/tic_tac_toe/configs/distill.yml")
ROWS = 24
"""Games of an epoch with one generation."""
SHARE = 5
"""Students play this fraction of the rollouts that GRPO has for its figures with nothing set."""
HEAD = "| task | seed | rollouts | before | after | share of the gain | divergence, first and last epoch |"


def main() -> None:
    """Print the teacher's score, a line for each student, and the mean."""
    parser = argparse.ArgumentParser(prog="python -m bench.distill", description=__doc__)
    parser.add_argument("--teacher", type=Path, help="Folder of a trained model; else one is trained.")
    parser.add_argument("--score", type=float, help="That model's held-out score.")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS // SHARE)
    parser.add_argument("--generations", type=int, default=2)
    options = parser.parse_args()
    if (options.teacher is None) != (options.score is None):
        parser.error("--teacher and --score go together")
    with tempfile.TemporaryDirectory() as folder:
        teacher, score = options.teacher, options.score
        if teacher is None:
            teacher, score = _teacher(Path(folder))
        print(f"The teacher: {score:.3f}\n\n{HEAD}\n|---|---|---:|---:|---:|---:|---:|", flush=True)
        shares = []
        for seed in options.seeds:
            summary, divergences = _distilled(teacher, Path(folder) / str(seed), seed, options)
            shares.append((summary["after"] - summary["before"]) / (score - summary["before"]))
            print(
                f"| tic-tac-toe | {seed} | {summary['rollouts']} | {summary['before']:.3f} | {summary['after']:.3f} "
                f"| {shares[-1]:.0%} | {divergences[0]:.2f}, {divergences[-1]:.2f} |",
                flush=True,
            )
    print(f"\nThe students have {fmean(shares):.0%} of the teacher's gain.")


def _teacher(folder: Path) -> tuple[Path, float]:
    """Train the teacher; gives its model and its held-out score."""
    run = trained(
        Case("tic_tac_toe", lora=False, seed=0, name="teacher", settings={}, tuned=True), folder, folder, 10**9
    )
    if run is None:
        sys.exit("the teacher could not be trained")
    summary = json.loads((run / "summary.json").read_text())
    return run / summary["model"], summary["after"]


def _distilled(
    teacher: Path, output: Path, seed: int, options: argparse.Namespace
) -> tuple[dict[str, Any], list[float]]:
    """Train a student; gives the run's summary and its divergence from the teacher by epoch."""
    epochs = options.rollouts // (ROWS * options.generations)
    changed = {
        "finetuning.seed": seed,
        "finetuning.num_epochs": epochs,
        "trajectory_builders.games.num_generations": options.generations,
    }
    words = [f"--validation_interval={epochs}", *_overrides(changed)]
    summary, run = _finetuned(output, teacher, *words)
    lines = [json.loads(line) for line in (run / "training_metrics.jsonl").read_text().splitlines()]
    played = sum(line["num_rollouts"] for line in lines)
    return summary | {"rollouts": played}, [line["metrics"]["train/teacher_kl"] for line in lines]


def _finetuned(output: Path, teacher: Path, *words: str) -> tuple[dict[str, Any], Path]:
    """Run `nat finetune` on the example; gives its summary and its folder."""
    changed = _overrides({"llms.teacher.model": teacher, "finetuning.output_dir": output})
    command = [
        str(Path(sys.executable).with_name("nat")),
        "--log-level",
        "error",
        "finetune",
        f"--config_file={EXAMPLE}",
    ]
    done = subprocess.run(
        [*command, "--json", *changed, *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary, Path(summary["run_dir"])


def _overrides(changed: dict[str, Any]) -> Iterator[str]:
    for key, value in changed.items():
        yield from ("-o", key, str(value))


if __name__ == "__main__":
    main()

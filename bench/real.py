"""What a real pretrained model learns from the tasks of `examples/real`, and what TRL's GRPO does in as many rollouts.

Each run is `nat finetune` in a process of its own, in the task's folder, with the options that its row names; TRL runs
in its own environment. `python -m conformance.environments real trl vllm` makes all that are needed. A finished run is
kept in `--folder`, where the table is, too: stop the bench at any time, start it again, and it goes on with what is
missing. With nothing chosen, it runs the six tasks in three seeds with nothing set; `--matrix` adds each way to hold
weights, each precision and each engine on two tasks, and `--trl` adds TRL on the tasks that `exact_match` scores.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from bench.report import machine, now
from conformance.engines.vllm import vllm_command
from conformance.environments import outside, python_of
from examples.real.packages import model

from nat.files import write_text
from nat.finetuning.verdict import compare
from nat.gguf_cache import converted

ROOT = Path(__file__).parents[1]
TASKS = ("city", "sentiment", "facts", "puzzle", "conversation", "capitals")
IN_MATRIX = ("city", "conversation")
GENERATED = ("puzzle",)
"""Tasks whose data needs a package of the environment `real`."""
NOTHING = "nothing set"
TRL_DEFAULTS, TRL_OUR_RATE = "TRL, its defaults", "TRL, our rate"
WEIGHTS: Mapping[str, Sequence[str]] = {
    "all weights": (),
    "LoRA": ("llms.student.lora.rank", "16"),
    "8-bit moments": ("trainer_adapters.weights.training.optimizer_bits", "8"),
}
ENGINES = ("embedded", "vllm")
DTYPES = ("float32", "bfloat16")
HEAD = (
    "| task | setting | seed | before | after | difference | low | high | verdict | seconds | rollouts | measured |\n"
    "|---|---|---|---:|---:|---:|---:|---:|---|---:|---:|---|"
)


@dataclass(frozen=True)
class Case:
    """One run."""

    task: str
    setting: str
    seed: int
    overrides: tuple[str, ...] = ()
    """Keys and values, one after the other."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        words = self.setting.replace(",", "").replace(" ", "_")
        return f"{self.task}-{words}-{self.seed}"

    @property
    def config(self) -> dict[str, Any]:
        """The task's YAML."""
        found: dict[str, Any] = yaml.safe_load((self.folder / "config.yml").read_text())
        return found

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
            f"| {case.task} | {case.setting} | {case.seed} | {self.before:.3f} | {self.after:.3f} "
            f"| {self.after - self.before:+.3f} | {low:+.3f} | {high:+.3f} | {self.verdict} | {self.seconds:.0f} "
            f"| {self.rollouts} | {self.when} |"
        )


def main() -> None:
    """Run what is missing, and print the table as it grows."""
    options = options_of()
    folder = options.folder.resolve()
    cases = list(cases_of(options))
    if options.print:
        for case in cases:
            print(shlex.join(map(str, _command(case, folder / case.name, options))))
        return
    for task in dict.fromkeys(case.task for case in cases):
        python = python_of("real") if task in GENERATED else sys.executable  # which has pip, to download sentences
        subprocess.run([python, "-m", f"examples.real.{task}.make_data"], cwd=ROOT, check=True)
    model()
    print(HEAD)
    rows = []
    for case in cases:
        result = kept_result(folder / case.name) or _measured(case, folder / case.name, options)
        if result is not None:
            rows.append(result.row(case))
            print(rows[-1], flush=True)
            write_text(folder / "table.md", "\n".join([machine(), "", HEAD, *rows, ""]))


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.real", description=__doc__)
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--matrix", action="store_true", help="Each weights x precision x engine on two tasks.")
    parser.add_argument("--trl", action="store_true", help="TRL's GRPO beside it.")
    parser.add_argument("--settings", nargs="*", help="Only these settings, as the table names them.")
    parser.add_argument("--set", nargs=2, action="append", default=[], help="A key and a value for all runs of ours.")
    parser.add_argument("--epochs", type=int, help="Epochs of each run; by default those of its YAML.")
    parser.add_argument("--num_held_out", type=int, help="Held-out examples for TRL; by default all.")
    parser.add_argument("--folder", type=Path, default=ROOT / ".tmp" / "real" / "cases")
    parser.add_argument("--print", action="store_true", help="Print the commands and run nothing.")
    return parser.parse_args(words)


def cases_of(options: argparse.Namespace) -> Iterator[Case]:
    """The runs that the command line chooses."""
    every = _all_cases(options)
    yield from (case for case in every if not options.settings or case.setting in options.settings)


def _all_cases(options: argparse.Namespace) -> Iterator[Case]:
    for task, seed in product(options.tasks, options.seeds):
        yield Case(task, NOTHING, seed)
        if options.matrix and task in IN_MATRIX:
            yield from _matrix(task, seed)
        if options.trl and _needs_exact_match(task):
            yield Case(task, TRL_DEFAULTS, seed)
            yield Case(task, TRL_OUR_RATE, seed)


def _matrix(task: str, seed: int) -> Iterator[Case]:
    for (weights, keys), dtype, engine in product(WEIGHTS.items(), DTYPES, ENGINES):
        own = ("llms.student.dtype", dtype, "llms.student.engine", engine, *keys)
        yield Case(task, f"{weights}, {dtype}, {engine}", seed, own)


def _needs_exact_match(task: str) -> bool:
    return bool(_evaluator(Case(task, NOTHING, 0))["_type"] == "exact_match")


def _evaluator(case: Case) -> dict[str, Any]:
    [evaluator] = case.config["eval"]["evaluators"].values()
    return dict(evaluator)


def _command(case: Case, folder: Path, options: argparse.Namespace) -> list[str | Path]:
    if case.setting in (TRL_DEFAULTS, TRL_OUR_RATE):
        return _trl_command(case, options)
    nat = python_of("real").with_name("nat")
    served = ("-o", "llms.student.vllm_command", vllm_command()) if "vllm" in case.overrides else ()
    return [nat, "--log-level", "warning", "finetune", "--json", *finetune_options(case, folder, options), *served]


def finetune_options(case: Case, folder: Path, options: argparse.Namespace) -> list[str]:
    """The options of `nat finetune`, in the task's folder."""
    epochs = [] if options.epochs is None else ["finetuning.num_epochs", str(options.epochs)]
    own = ["finetuning.seed", str(case.seed), "finetuning.output_dir", str(folder / "runs"), *epochs]
    words = [*case.overrides, *(word for pair in options.set for word in pair), *own]
    pairs = zip(words[::2], words[1::2], strict=True)
    return ["--config_file=config.yml", *(part for key, value in pairs for part in ("-o", key, value))]


def _trl_command(case: Case, options: argparse.Namespace) -> list[str | Path]:
    from nat.backend.training.optimizer import usual_learning_rate

    weights, config = converted(model()), case.config
    width = json.loads((weights / "config.json").read_text())["hidden_size"]
    steps = options.epochs or config["finetuning"]["num_epochs"]
    command: list[str | Path] = [python_of("trl"), ROOT / "conformance" / "trl" / "grpo.py", weights, "data"]
    command += ["--max_tokens", str(config["llms"]["student"]["max_tokens"]), "--steps", str(steps)]
    command += ["--seed", str(case.seed)]
    if case.setting == TRL_OUR_RATE:
        command += ["--rate", f"{usual_learning_rate(width, lora=False):.3g}"]
    if options.num_held_out is not None:
        command += ["--num_held_out", str(options.num_held_out)]
    return [*command, "--ignore_case"] if _evaluator(case).get("ignore_case") else command


def kept_result(folder: Path) -> Result | None:
    """The figures of a case that was finished before."""
    file = folder / "result.json"
    if not file.exists():
        return None
    kept = json.loads(file.read_text())["result"]
    return Result(**kept | {"interval": tuple(kept["interval"])})


def _measured(case: Case, folder: Path, options: argparse.Namespace) -> Result | None:
    """Run the case; None, with the reason in `log.txt`, if it failed."""
    folder.mkdir(parents=True, exist_ok=True)
    command, when, began = _command(case, folder, options), now(), time.monotonic()
    env = outside() | {name: os.environ[name] for name in ("OMP_NUM_THREADS",) if name in os.environ}
    with (folder / "log.txt").open("w") as log:
        done = subprocess.run(
            command, cwd=case.folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True, check=False
        )
    if done.returncode:
        sys.stderr.write(f"{case.name}: exit code {done.returncode}, see {folder / 'log.txt'}\n")
        return None
    result = result_of(json.loads(done.stdout.splitlines()[-1]), when, time.monotonic() - began)
    kept = {"command": shlex.join(map(str, command)), "machine": machine(), "result": vars(result)}
    write_text(folder / "result.json", json.dumps(kept, indent=1))
    for weights in (*folder.glob("runs/*/checkpoints"), *folder.glob("runs/*/model")):
        shutil.rmtree(weights, ignore_errors=True)  # gigabytes, which the figures do not need
    return result


def result_of(found: dict[str, Any], when: str, seconds: float) -> Result:
    """Read what `nat finetune --json` or TRL's program printed."""
    if isinstance(found["before"], list):  # TRL's program gives the scores
        before, after = ({str(n): score for n, score in enumerate(found[name])} for name in ("before", "after"))
        found |= vars(compare(before, after))
    low, high = found["interval"]
    numbers = (found["before"], found["after"], (low, high), str(found["verdict"]), found.get("seconds", seconds))
    return Result(*numbers, found["rollouts"], when)


if __name__ == "__main__":
    main()

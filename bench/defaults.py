"""What the defaults of training are worth: the held-out reward with nothing set, beside the best hand-tuned setting.

Each run is `nat finetune` in a process of its own. `--rates` also trains with these multiples of the default learning
rate, so that the table shows how far the default is from the best. The tasks are those of `bench.tasks`, which no
default was chosen on, and the examples of the repository. An example plays at most as many rollouts as its YAML says,
and is also trained as that stands, tuned by hand. Those with a framework need its environment (`make frameworks`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from bench.tasks.models import TASKS
from conformance.environments import python_of

ROLLOUTS = 6144
"""Rollouts of a run."""
EXAMPLES = {
    "tic_tac_toe": None,
    "node_agent": None,
    "langgraph_agent": "langchain",
    "adk_agent": "adk",
    "llama_index_agent": "llama_index",
}
"""Examples of the repository, and the environments that their frameworks need."""
BUILDER_KEYS = frozenset({"examples_per_epoch", "num_generations", "choose_examples", "max_refills"})
HEAD = "| task | weights | setting | seed | before | after | best | rate |\n|---|---|---|---|---:|---:|---:|---:|"


@dataclass(frozen=True)
class Case:
    """One run: a task, its weights, and what is set for it."""

    task: str
    lora: bool
    seed: int
    name: str
    settings: Mapping[str, Any]
    """Keys of the builder or of `training`, and their values."""
    tuned: bool = False
    """The example's YAML as it stands."""


@dataclass(frozen=True)
class Result:
    """The held-out reward before and after a run."""

    case: Case
    before: float
    after: float
    best: float
    """The highest of all validations."""
    rate: float
    """The learning rate of the last epoch."""

    def row(self) -> str:
        """Format the run as a line of the table."""
        weights = "LoRA" if self.case.lora else "all"
        return (
            f"| {self.case.task} | {weights} | {self.case.name} | {self.case.seed} | {self.before:.3f} "
            f"| {self.after:.3f} | {self.best:.3f} | {self.rate:.2g} |"
        )


def main() -> None:
    """Print a line for each run, and the share of the best gain that the defaults reach."""
    parser = argparse.ArgumentParser(prog="python -m bench.defaults", description=__doc__)
    parser.add_argument("--tasks", nargs="*", default=[*TASKS, *EXAMPLES])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--rates", type=float, nargs="*", default=[], help="Multiples of the default learning rate.")
    parser.add_argument("--weights", nargs="*", choices=("all", "LoRA"), default=["all", "LoRA"])
    parser.add_argument("--set", nargs=2, action="append", default=[], help="A key and a value of all runs.")
    parser.add_argument("--name", default="nothing set", help="What to call the setting in the table.")
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS)
    parser.add_argument("--folder", type=Path, help="Where tasks and models are kept.")
    parser.add_argument("--at_once", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        cases = list(_cases(options))
        for task in options.tasks:
            make_task(task, folder)
        print(HEAD, flush=True)
        with ThreadPoolExecutor(options.at_once) as pool:
            found = list(pool.map(lambda case: _shown(measure(case, folder, options.rollouts)), cases))
    for line in shares(found):
        print(line)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    for task in options.tasks:
        for weights in options.weights:
            for seed in options.seeds:
                fixed = dict(options.set)
                yield Case(task, weights == "LoRA", seed, options.name, fixed)
                if task in EXAMPLES and _has_lora(_example(task)) == (weights == "LoRA"):
                    yield Case(task, weights == "LoRA", seed, "tuned by hand", {}, tuned=True)
                for factor in options.rates:
                    yield Case(task, weights == "LoRA", seed, f"rate x {factor:g}", {**fixed, "rate": factor})


def measure(case: Case, folder: Path, rollouts: int) -> Result:
    """Train once, and read the figures from the run's folder."""
    with tempfile.TemporaryDirectory() as output:
        run = trained(case, folder, Path(output), rollouts)
        if run is None:
            return Result(case, float("nan"), float("nan"), float("nan"), float("nan"))
        summary = json.loads((run / "summary.json").read_text())
        lines = [json.loads(line) for line in (run / "training_metrics.jsonl").read_text().splitlines()]
        rates = [0.0, *(line["metrics"].get("train/learning_rate", 0.0) for line in lines)]
        best = summary["best"]["score"] if summary["best"] else summary["after"]
        return Result(case, summary["before"], summary["after"], best, rates[-1])


def trained(case: Case, folder: Path, output: Path, rollouts: int) -> Path | None:
    """Train as the case says; gives the run's folder, or None if it failed."""
    return finetuned(config_of(case, folder, output, rollouts), output, EXAMPLES.get(case.task))


def finetuned(config: Mapping[str, Any], output: Path, environment_name: str | None = None) -> Path | None:
    """Train in a process of its own; gives the run's folder, or None, with the reason on stderr, if it failed."""
    path = output / "config.yml"
    path.write_text(yaml.safe_dump(config))
    python = Path(sys.executable) if environment_name is None else python_of(environment_name)
    command = [str(python.with_name("nat")), "--log-level", "error", "finetune"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [*command, f"--config_file={path}", "--json"], env=environment, capture_output=True, text=True, check=False
    )
    run = next(iter((output / "runs").glob("*/summary.json")), None)
    if done.returncode or run is None:
        sys.stderr.write(f"{path}: {done.stderr[-2000:]}\n")
        return None
    return run.parent


def config_of(case: Case, folder: Path, output: Path, rollouts: int) -> dict[str, Any]:
    """The YAML of a run: nothing under `training` but what the case sets."""
    config = _example(case.task) if case.task in EXAMPLES else _task_config(case, folder)
    [builder], [adapter] = config["trajectory_builders"].values(), config["trainer_adapters"].values()
    settings = dict(case.settings)
    factor, interval = settings.pop("rate", None), settings.pop("validation_interval", None)
    llm = config["llms"][adapter["llm"]]
    if case.lora:
        llm.setdefault("lora", {})
    else:
        llm.pop("lora", None)
    rows = len(Path(config["eval"]["general"]["dataset"]["file_path"]).read_text().splitlines())
    run = config["finetuning"]
    if case.task in EXAMPLES:
        rollouts = min(rollouts, run["num_epochs"] * rows * builder["num_generations"])
    if not case.tuned:
        values = {
            key: value if isinstance(value, dict) else yaml.safe_load(str(value)) for key, value in settings.items()
        }
        chosen = {key: value for key, value in values.items() if key in BUILDER_KEYS}
        training = {key: value for key, value in values.items() if key not in BUILDER_KEYS}
        if factor is not None:
            training["learning_rate"] = factor * _usual_rate(Path(llm["model"]), lora=case.lora)
        adapter["training"] = training
        builder.clear()
        builder.update({"_type": "local_traj_builder"} | chosen)
    epochs = max(1, rollouts // (builder.get("num_generations", 8) * (builder.get("examples_per_epoch", 16) or rows)))
    held_out = run["run_configuration"]["validation_dataset"]
    interval = interval or max(1, epochs // 4)
    config["finetuning"] = run | {
        "num_epochs": epochs,
        "seed": case.seed,
        "output_dir": str(output / "runs"),
        "run_configuration": {"validation_dataset": held_out, "validation_interval": interval},
    }
    config["eval"]["general"].pop("output_dir", None)
    return dict(config)


def _example(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(Path(f"examples/{name}/configs/finetune.yml").read_text())
    return config


def _has_lora(config: Mapping[str, Any]) -> bool:
    [adapter] = config["trainer_adapters"].values()
    return "lora" in config["llms"][adapter["llm"]]


def _usual_rate(model: Path, *, lora: bool) -> float:
    from nat.backend.training.optimizer import usual_learning_rate

    return usual_learning_rate(json.loads((model / "config.json").read_text())["hidden_size"], lora=lora)


def _task_config(case: Case, folder: Path) -> dict[str, Any]:
    task = TASKS[case.task]
    return {
        "imports": [str(Path(__file__).parent / "tasks" / "agents.py")],
        "llms": {
            "student": {
                "_type": "local",
                "model": str(folder / case.task / "model"),
                "max_tokens": task.max_tokens,
                "save_every": 1000,
            }
        },
        "workflow": {"_type": task.workflow, "llm": "student"},
        "eval": {
            "general": {
                "max_concurrency": 64,
                "dataset": {"_type": "jsonl", "file_path": str(folder / case.task / "train.jsonl")},
            },
            "evaluators": {"score": {"_type": task.evaluator}},
        },
        "trajectory_builders": {"builder": {"_type": "local_traj_builder"}},
        "trainer_adapters": {"weights": {"_type": "local_trainer_adapter", "llm": "student"}},
        "trainers": {"trainer": {"_type": "local_trainer"}},
        "finetuning": {
            "enabled": True,
            "trainer": "trainer",
            "trajectory_builder": "builder",
            "trainer_adapter": "weights",
            "reward_function": {"name": "score"},
            "run_configuration": {"validation_dataset": str(folder / case.task / "held_out.jsonl")},
        },
    }


def shares(found: Sequence[Result]) -> Iterator[str]:
    """For each task and weights: the mean gain with nothing set, over that of the best setting."""
    for task, lora in dict.fromkeys((each.case.task, each.case.lora) for each in found):
        own = [each for each in found if (each.case.task, each.case.lora) == (task, lora)]
        gains = {
            name: fmean(each.after - each.before for each in own if each.case.name == name)
            for name in dict.fromkeys(each.case.name for each in own)
        }
        text = ", ".join(f"{name} {gain:+.3f}" for name, gain in gains.items())
        yield f"{task}, {'LoRA' if lora else 'all weights'}: {text}"


def make_task(task: str, folder: Path) -> None:
    """Make the data and the model of a task of `bench.tasks` below `folder`, unless they are there."""
    if task in TASKS and not (folder / task / "model" / "model.safetensors").exists():
        command = [sys.executable, "-m", "bench.tasks.models", task, str(folder / task)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _shown(result: Result) -> Result:
    print(result.row(), flush=True)
    return result


if __name__ == "__main__":
    main()

"""Which algorithm when: one task, one budget of rollouts, and each way to train on it.

Each run is `nat finetune` on tic-tac-toe in a process of its own, with nothing set but what names the algorithm. What a
way needs besides rollouts is made first and said beside its figures: games of a perfect player for SFT, a trained model
for distillation.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.defaults import Case, config_of, finetuned

from nat.runs.journal import reading

TASK, ROLLOUTS = "tic_tac_toe", 3072
DEMONSTRATIONS = Path("examples/tic_tac_toe/data/demonstrations.jsonl")
TEACHER_ROLLOUTS = 6144
SFT_EPOCHS = 10
HEAD = (
    "| way | seed | before | after | best | at a third | rollouts | minutes |\n|---|---|---:|---:|---:|---:|---:|---:|"
)

Config = dict[str, Any]
Change = Callable[[Config], None]


@dataclass(frozen=True)
class Result:
    """One run."""

    way: str
    seed: int
    before: float
    after: float
    best: float
    early: float
    """The first validation after training began, at a third of the rollouts."""
    rollouts: int
    minutes: float

    def row(self) -> str:
        """Format the run as a line of the table."""
        scores = " | ".join(f"{each:.3f}" for each in (self.before, self.after, self.best, self.early))
        return f"| {self.way} | {self.seed} | {scores} | {self.rollouts} | {self.minutes:.1f} |"


def as_it_is(_: Config) -> None:
    """Train with nothing set."""


def by(algorithm: str, config: Config, **options: Any) -> None:
    """Train with this algorithm on the workflow's own rollouts."""
    _adapter(config)["training"] = {"algorithm": algorithm} | ({"options": options} if options else {})


def imitate_first(config: Config) -> None:
    """Train on the demonstrations before the epochs that play."""
    run, [builder], [adapter] = config["finetuning"], config["trajectory_builders"], config["trainer_adapters"]
    config["trajectory_builders"]["demonstrations"] = {
        "_type": "dataset_traj_builder",
        "file_path": str(DEMONSTRATIONS),
        "examples_per_epoch": 64,
    }
    config["trainer_adapters"]["imitation"] = _adapter(config) | {"training": {"algorithm": "sft"}}
    run["phases"] = [
        {
            "name": "imitate",
            "num_epochs": SFT_EPOCHS,
            "trajectory_builder": "demonstrations",
            "trainer_adapter": "imitation",
        },
        {
            "name": "play",
            "num_epochs": run.pop("num_epochs"),
            "trajectory_builder": builder,
            "trainer_adapter": adapter,
        },
    ]
    del run["trajectory_builder"], run["trainer_adapter"]


def imitate(config: Config) -> None:
    """Train on the demonstrations alone."""
    [builder] = config["trajectory_builders"]
    own = {"_type": "dataset_traj_builder", "file_path": str(DEMONSTRATIONS), "examples_per_epoch": 64}
    config["trajectory_builders"][builder] = own
    by("sft", config)
    config["finetuning"]["num_epochs"] = SFT_EPOCHS


def distill(teacher: Path, config: Config) -> None:
    """Train towards a model that can play."""
    config["llms"]["teacher"] = {"_type": "local", "model": str(teacher)}
    _adapter(config)["teacher"] = "teacher"
    by("distill", config)


def _adapter(config: Config) -> Config:
    adapter: Config = next(iter(config["trainer_adapters"].values()))
    return adapter


WAYS: Mapping[str, Change] = {
    "the default, `lite_ppo`": as_it_is,
    "DPO": partial(by, "dpo"),
    "DPO, `completion: turn`": partial(by, "dpo", completion="turn"),
    "KTO": partial(by, "kto"),
    "rejection sampling (`rft`)": partial(by, "rft"),
    "SFT": imitate,
    "SFT, then the default": imitate_first,
}
TAUGHT = "distillation"


def main() -> None:
    """Print a line for each run, and the means of each way."""
    parser = argparse.ArgumentParser(prog="python -m bench.algorithms", description=__doc__)
    parser.add_argument("--ways", nargs="*", default=[*WAYS, TAUGHT])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--rollouts", type=int, default=ROLLOUTS)
    parser.add_argument("--teacher", type=Path, help="A trained model; else one is trained first.")
    parser.add_argument("--at_once", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.at_once) as pool:
        ways = dict(WAYS)
        if TAUGHT in options.ways:
            ways[TAUGHT] = partial(distill, options.teacher or _trained_teacher(Path(temporary)))
        print(HEAD, flush=True)
        runs = [(way, seed) for way in options.ways for seed in options.seeds]
        found = list(pool.map(lambda run: _measured(run[0], run[1], ways[run[0]], options.rollouts), runs))
    for way in options.ways:
        own = [each for each in found if each is not None and each.way == way]
        print(f"{way}: {_means(own)}")


def _measured(way: str, seed: int, change: Change, rollouts: int) -> Result | None:
    with tempfile.TemporaryDirectory() as folder:
        run = _run(seed, change, rollouts, Path(folder))
        if run is None:
            return None
        summary = json.loads((run / "summary.json").read_text())
        with reading(run) as journal:
            played = sum(epoch.num_rollouts for epoch in journal.each_epoch())
            scores = [fmean(each.rewards) for each in journal.validations()]
    best = summary["best"]["score"] if summary["best"] else summary["after"]
    minutes = summary["seconds"] / 60
    result = Result(way, seed, summary["before"], summary["after"], best, scores[1], played, minutes)
    print(result.row(), flush=True)
    return result


def _run(seed: int, change: Change, rollouts: int, folder: Path) -> Path | None:
    case = Case(TASK, lora=False, seed=seed, name="", settings={})
    config = config_of(case, folder, folder, rollouts)
    run = config["finetuning"]
    run["run_configuration"]["validation_interval"] = max(1, run["num_epochs"] // 3)
    change(config)
    return finetuned(config, folder)


def _trained_teacher(folder: Path) -> Path:
    run = _run(99, as_it_is, TEACHER_ROLLOUTS, folder)
    if run is None:
        raise SystemExit("the teacher's training failed")
    return run / "model"


def _means(found: Sequence[Result]) -> str:
    if not found:
        return "no run"
    before, after, best = (fmean(getattr(each, name) for each in found) for name in ("before", "after", "best"))
    return f"{before:.3f} → {after:.3f} (best {best:.3f}), {fmean(each.rollouts for each in found):.0f} rollouts"


if __name__ == "__main__":
    main()

"""Run a small project, kill it, go on with it, and look at what it came to."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from fakes.planted_project import CLASSES, COLOURS, DONE, NOISE
from killed.agents import JUDGED, PLAYED
from killed.processes import AT, PROGRAM
from nat.backend.output_folder import LOCK
from nat.files import UNFINISHED
from nat.runs.journal import reading
from nat.runs.records import BestEpoch, Phase, RunSummary
from recorded.playing import MODEL, changed, make_teacher

ROOT = Path(__file__).parents[2]
DEADLINE = 240
_VARYING = re.compile(r"^(time/.*|.*seconds|.*per_second|timestamp|.*_at|memory/.*|scoring)$")
"""Fields that two equal runs have with different values."""
_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")

USUAL = """
llms: {student: {_type: local, model: model, max_tokens: 6, threads: 1, device: cpu}}
workflow: {_type: killed_agent}
eval:
  general: {max_concurrency: 1, dataset: {_type: jsonl, file_path: train.jsonl}}
  evaluators: {judge: {_type: killed_judge}}
trajectory_builders: {rollouts: {_type: local_traj_builder, num_generations: 2}}
trainer_adapters: {weights: {_type: local_trainer_adapter, llm: student, training: {steps_per_batch: 1}}}
trainers: {trainer: {_type: local_trainer}}
finetuning:
  enabled: true
  trainer: trainer
  trajectory_builder: rollouts
  trainer_adapter: weights
  reward_function: {name: judge}
  num_epochs: 3
  output_dir: runs
  run_configuration: {validation_dataset: held_out.jsonl, validation_interval: 3}
"""
_IMITATES = {"trajectory_builder": "file", "trainer_adapter": "imitate"}
_FILE = {"_type": "dataset_traj_builder", "file_path": "rows.jsonl"}
PROJECTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "phases": {
        "trajectory_builders.file": _FILE,
        "trainer_adapters.imitate": {
            "_type": "local_trainer_adapter",
            "llm": "student",
            "training": {"algorithm": "sft", "steps_per_batch": 1},
        },
        "finetuning.num_epochs": None,
        "finetuning.phases": [
            {"name": "sft", "num_epochs": 2, **_IMITATES},
            {"name": "play", "num_epochs": 1},
        ],
    },
    "pairs": {
        "trajectory_builders.rollouts": {**_FILE, "file_path": "pairs.jsonl"},
        "trainer_adapters.weights.training": {"algorithm": "dpo", "steps_per_batch": 1},
    },
    "teacher": {
        "llms.teacher": {"_type": "local", "model": "teacher", "threads": 1, "device": "cpu", "max_num_seqs": 1},
        "trainer_adapters.weights.teacher": "teacher",
        "trainer_adapters.weights.training": {"algorithm": "distill", "steps_per_batch": 1},
    },
    "team": {
        "llms.worker": {"_type": "local", "model": "model", "max_tokens": 6, "threads": 1, "device": "cpu"},
        "workflow.second": "worker",
        "finetuning.trainer_adapter": None,
        "finetuning.trainer_adapters": {"one": "weights", "other": "worker"},
    },
}
"""By dotted key, what a project has besides the usual; None removes a key."""


def make_project(folder: Path, project: str) -> None:
    """Write the files that a user would have."""
    folder.mkdir(parents=True)
    asked = [f"{each} {NOISE[at]}" for at, each in enumerate(CLASSES)]
    right = f"{COLOURS[0]} {DONE}"
    said = [[{"role": "user", "content": each}, {"role": "assistant", "content": right}] for each in asked]
    rows = {
        "train.jsonl": [{"id": f"{at}", "question": asked[at], "answer": "red"} for at in range(2)],
        "held_out.jsonl": [{"id": f"{at}", "question": asked[at], "answer": "red"} for at in (2, 3)],
        "rows.jsonl": [{"messages": each} for each in said[:2]],
        "pairs.jsonl": [{"prompt": each, "chosen": right, "rejected": f"{COLOURS[1]} {DONE}"} for each in asked[:2]],
    }
    for name, values in rows.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in values))
    config = changed(yaml.safe_load(USUAL), PROJECTS[project])
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    shutil.copytree(MODEL, folder / "model")
    make_teacher(folder / "teacher")


def run(folder: Path, point: str = "") -> tuple[int, str]:
    """Start `nat finetune`, which goes on with the run if there is one; gives its exit code and its output."""
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format("harness"), "finetune", "--config_file=config.yml", "--resume=auto"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(folder / "state"), AT: point},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    return done.returncode, done.stdout


def facts(folder: Path) -> dict[str, Any]:
    """All that a run came to, without times."""
    run_dir = (folder / "runs" / "latest").resolve()
    found: dict[str, Any] = {}
    with reading(run_dir) as journal:
        found["state"] = str(journal.info().state)
        for phase in Phase:
            for epoch in journal.played(phase):
                for record in journal.rollouts(phase, epoch):
                    name = f"rollout {phase} {epoch} {record.example_id} {record.generation}"
                    assert name not in found
                    found[name] = record.model_dump(mode="json")
            kept = [epoch for epoch in range(5) if journal.kept(phase, epoch)]
            found[f"kept {phase}"] = kept
        for name, records in {
            "epochs": journal.epochs(),
            "validations": journal.validations(),
            "jobs": journal.jobs(),
            "phases": journal.phases(),
            "ends": filter(None, (journal.find(BestEpoch), journal.find(RunSummary))),
        }.items():
            found[name] = [each.model_dump(mode="json") for each in records]
    for path in sorted(run_dir.rglob("*")):
        name = str(path.relative_to(run_dir))
        assert UNFINISHED not in name
        if path.is_symlink():
            found[f"link {name}"] = str(path.readlink())
        elif path.suffix == ".safetensors":
            found[f"weights {name}"] = sha256(path.read_bytes()).hexdigest()
        elif path.is_file() and not path.name.startswith((".run", LOCK)):
            found[f"file {name}"] = True
    return {name: _still(value) for name, value in json.loads(_RUN.sub("RUN", json.dumps(found))).items()}


def _still(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _still(part) for key, part in value.items() if not _VARYING.match(key)}
    return [_still(part) for part in value] if isinstance(value, list) else value


def differences(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    """Each leaf that differs."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            yield from differences(expected.get(key), found.get(key), f"{place}/{key}")
    elif expected != found:
        yield f"{place}: {str(expected)[:200]} was expected, found {str(found)[:200]}"


def calls_more(undisturbed: Path, folder: Path) -> int:
    """How many calls of agent and judge were made again; none is missing."""
    more = 0
    for name in (PLAYED, JUDGED):
        expected, found = (
            Counter((each / name).read_text().splitlines() if (each / name).exists() else ())
            for each in (undisturbed, folder)
        )
        assert not expected - found
        more = max(more, (found - expected).total())
    return more

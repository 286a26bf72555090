"""`nat finetune` with a teacher, as the example's file has it: two backends, and what the run records."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from e2e.doc_pages import ROOT
from fakes.nat_here import nat_here

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

CONFIG = "examples/tic_tac_toe/configs/distill.yml"
MODEL = ROOT / "examples/tic_tac_toe/model"


@pytest.fixture
def teacher(tmp_path) -> Path:
    """The student's model with sharper probabilities."""
    folder = tmp_path / "teacher"
    shutil.copytree(MODEL, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = 2.0 * weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def arguments(tmp_path, *options: str) -> list[str]:
    """Those of a short run with the example's file."""
    for split, count in (("train", 6), ("validation", 4)):
        lines = (ROOT / f"examples/tic_tac_toe/data/{split}.jsonl").read_text().splitlines()[:count]
        (tmp_path / split).write_text("\n".join(lines))
    given = {
        "eval.general.dataset.file_path": f"{tmp_path / 'train'}",
        "finetuning.output_dir": f"{tmp_path / 'runs'}",
        "finetuning.num_epochs": "2",
        "trajectory_builders.games.num_generations": "1",
        "llms.player.threads": "1",
        "llms.teacher.threads": "1",
    }
    overrides = [part for key, value in given.items() for part in ("-o", key, value)]
    files = (f"--config_file={CONFIG}", f"--validation_dataset={tmp_path / 'validation'}")
    return ["finetune", "--json", *files, *overrides, *options]


def test_a_run_learns_from_a_teacher(tmp_path, teacher):
    """Single rollouts teach without a warning, the epoch has the teacher's metrics, and only the student is trained."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from nat.cli.main import run_cli; run_cli()"),
            *arguments(tmp_path, "-o", "llms.teacher.model", str(teacher)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "num_generations is 1" not in done.stderr
    folder = Path(json.loads(done.stdout)["run_dir"])
    assert {path.name for path in folder.glob("backend*.log")} == {"backend.log", "backend_teacher.log"}
    for line in (folder / "training_metrics.jsonl").read_text().splitlines():
        epoch = json.loads(line)
        metrics = epoch["metrics"]
        assert abs(metrics["train/teacher_kl"]) > 0.01
        assert metrics["train/teacher_calls"] == metrics["train/trained_rows"] == 6
        assert metrics["train/teacher_tokens"] >= metrics["train/row_tokens"]
        assert metrics["train/teacher_seconds"] <= metrics["time/submit"]
        assert metrics["train/zero_advantages"] == 0
        assert epoch["groups_without_difference"] == 0
        used = epoch["usage"]["teacher"]["teacher"]
        assert (used["calls"], used["prompt_tokens"]) == (6, metrics["train/teacher_tokens"])
    trained = load_file(folder / "model" / "model.safetensors")
    start = load_file(MODEL / "model.safetensors")
    assert any((trained[name] != start[name]).any() for name in start)
    causes = json.loads(done.stdout)["causes"]
    assert all("nothing to compare a rollout with" not in cause["title"].lower() for cause in causes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "trainer_adapters.weights.training.algorithm", "grpo"), "teacher 'teacher' has no effect with 'grpo'"),
        (("-o", "trainer_adapters.weights.teacher", "player"), "'player' is the student itself"),
        (("-o", "trainer_adapters.weights.teacher", "tutor"), "'tutor' is not under llms"),
        (("-o", "trainer_adapters.weights.teacher", "null"), "no teacher, which the algorithm 'distill' imitates"),
    ],
)
def test_a_wrong_teacher_ends_the_run_before_the_first_rollout(tmp_path, options, message):
    """A teacher that is missing, unknown, without effect or the student itself is an error with the remedy."""
    done = nat_here(*arguments(tmp_path, "-o", "llms.teacher.model", str(MODEL), *options), folder=ROOT)
    assert done.returncode == 1
    assert message in done.stderr
    assert "held-out" not in done.stderr

"""Demonstrations and preferences, from a file or from the workflow's own rollouts: the model gets better."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakes.backend_here import backend_here
from fakes.made_once import made_once
from fakes.planted_project import CLASSES, COLOURS, DONE, NOISE, Plant, PlantedProject, make_word_model
from nat.cli.commands.runs import runs_command
from nat.errors import BackendError, DatasetError
from nat.runs.journal import Journal
from nat.runs.records import Phase

RIGHT = f"{COLOURS[0]} {DONE}"
QUESTIONS = {f"{CLASSES[number % 4]} {NOISE[number]}": f"{COLOURS[1 + number % 3]} {DONE}" for number in range(32)}
"""Questions, and a wrong answer to each."""


def asked(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


FILES = {
    "sft": [asked(question, RIGHT) for question in QUESTIONS],
    "dpo": [{"prompt": question, "chosen": RIGHT, "rejected": wrong} for question, wrong in QUESTIONS.items()],
    "kto": [
        {"prompt": question, "completion": answer, "label": label}
        for question, wrong in QUESTIONS.items()
        for answer, label in ((RIGHT, True), (wrong, False))
    ],
    "rft": [
        {"prompt": question, "completion": answer, "reward": reward}
        for question, wrong in QUESTIONS.items()
        for answer, reward in ((wrong, 0.0), (RIGHT, 0.9))
    ],
}
"""Rows that teach the same, by the algorithm that learns from them."""


@pytest.fixture(scope="module")
def model(shared_folder) -> Path:
    return made_once(shared_folder / "word_model", make_word_model)


@pytest.fixture(autouse=True)
def _backend(monkeypatch):
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)


def project_with(folder: Path, model: Path, rows: list[dict[str, Any]], plant: Plant) -> PlantedProject:
    """A project that trains on these rows, and validates as every other one."""
    project = PlantedProject(folder, model, plant)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    project.config["trajectory_builders"]["rollouts"] = {"_type": "dataset_traj_builder", "file_path": str(path)}
    return project


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=() if name == "dpo" else pytest.mark.slow) for name in FILES]
)
async def test_a_model_learns_from_a_file(tmp_path, model, algorithm):
    """No rollouts but those of the validations: the verdict is an improvement."""
    plant = Plant(training={"algorithm": algorithm, "steps_per_batch": 4}, epochs=8)
    project = project_with(tmp_path, model, FILES[algorithm], plant)
    result = await project.run()
    assert result.summary.verdict == "improved"
    assert result.summary.tokens_trained > 0
    assert result.summary.broken_by == {}
    assert result.summary.causes == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dpo", "kto", "rft"])
async def test_a_model_learns_from_preferences_among_its_own_answers(tmp_path, model, algorithm):
    """The workflow, the builder and the score stay; only the algorithm is another one."""
    training = {"algorithm": algorithm} | ({"steps_per_batch": 8} if algorithm == "rft" else {})
    plant = Plant(per_class=4, training=training, epochs=6 if algorithm == "rft" else 8)
    project = PlantedProject(tmp_path, model, plant)
    result = await project.run()
    assert result.summary.verdict == "improved"
    assert result.summary.causes == []


async def test_policy_gradients_refuse_texts(tmp_path, model):
    """Demonstrations have no log probabilities; the error names the algorithms that need none."""
    project = project_with(tmp_path, model, FILES["dpo"], Plant())
    with pytest.raises(BackendError, match="without a log probability"):
        await project.run()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"question": "?"}], r"row 1: the columns question are none of the formats: chosen, rejected; prompt, comp"),
        ([{"prompt": "a", "chosen": "b", "rejected": "b"}], "row 1: chosen and rejected are equal"),
        ([{"prompt": "a", "completion": "b", "label": "yes"}], "row 1: label: 'yes' where true or false was expected"),
        ([{"messages": [{"role": "user", "content": "a"}]}], "row 1: messages: none is an answer of the assistant"),
        ([FILES["sft"][0], FILES["dpo"][0]], "row 1 has demonstrations; row 2 has pairs"),
        ([], "it has no rows"),
    ],
)
async def test_a_row_that_cannot_be_used_is_named(tmp_path, model, rows, message):
    """Before anything is trained: which row, what it has, and what was wanted."""
    with pytest.raises(DatasetError, match=message):
        await project_with(tmp_path, model, rows, Plant()).run()


@pytest.mark.slow
async def test_phases_train_one_model_with_one_journal(tmp_path, model):
    """Epochs are numbered through; every phase begins with the weights and the scores at the end of the one before."""
    project = PlantedProject(tmp_path, model, Plant(per_class=4, finetuning={"export_best": True}))
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in FILES["sft"]))
    config = project.config
    config["trajectory_builders"]["file"] = {"_type": "dataset_traj_builder", "file_path": str(path)}
    training = {"algorithm": "sft", "steps_per_batch": 4}
    config["trainer_adapters"]["imitate"] = config["trainer_adapters"]["weights"] | {"training": training}
    del config["finetuning"]["num_epochs"]
    config["finetuning"]["phases"] = [
        {"name": "sft", "num_epochs": 5, "trajectory_builder": "file", "trainer_adapter": "imitate"},
        {"name": "grpo", "num_epochs": 3},
    ]
    result = await project.run()
    summary, run_dir = result.summary, result.run_dir
    sft, grpo = summary.phases
    assert [(each.name, each.first_epoch, each.epochs) for each in summary.phases] == [("sft", 0, 5), ("grpo", 5, 3)]
    assert (summary.epochs, summary.before, summary.after) == (8, sft.before, grpo.after)
    assert sft.after == grpo.before
    assert sft.verdict == "improved"
    assert json.loads((run_dir / "summary.json").read_text())["phases"][1]["name"] == "grpo"
    lines = [json.loads(line) for line in (run_dir / "training_metrics.jsonl").read_text().splitlines()]
    assert [(line["epoch"], line["phase"]) for line in lines] == list(enumerate(["sft"] * 5 + ["grpo"] * 3))
    with Journal.open(run_dir, read_only=True) as journal:
        assert [record.epoch for record in journal.validations()] == [0, 5, 8]
        jobs, first = journal.jobs(), next(journal.rollouts(Phase.TRAIN, 5))
    assert len({job.id for job in jobs}) == 8
    assert [job.training["algorithm"] for job in jobs] == ["sft"] * 5 + ["lite_ppo"] * 3
    assert set(first.policy_versions) == {jobs[4].policy_version}
    assert jobs[5].metrics["learning_rate"] < jobs[4].metrics["learning_rate"], "the warmup begins anew"
    assert summary.best.epoch in {5, 8}
    assert (run_dir / summary.best_model / "config.json").is_file(), "whichever adapter kept the best weights"


@pytest.fixture(scope="module")
def played_run(shared_folder, model) -> Path:
    """A run that played 256 rollouts with the model as it is; its one update hardly moves the weights."""

    def play(folder: Path) -> None:
        plant = Plant(per_class=4, generations=16, epochs=1, training={"learning_rate": 1e-6})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("nat.plugins.local.llm.running_backend", backend_here)
            asyncio.run(PlantedProject(folder, model, plant).run())

    return made_once(shared_folder / "played", play) / "runs" / "latest"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "options"),
    [
        ({"algorithm": "sft"}, ["--as", "messages", "--min_reward", "1"]),
        ({"algorithm": "dpo"}, ["--as", "preference", "--margin", "0.5"]),
        ({"algorithm": "kto"}, ["--as", "kto"]),
    ],
    ids=["sft", "dpo", "kto"],
)
async def test_the_rollouts_of_a_run_train_another_model(tmp_path, model, played_run, training, options):
    """The file that `nat runs rollouts` writes is training data as it is; the verdict is a new one."""
    file = tmp_path / "exported.jsonl"
    exported = CliRunner().invoke(runs_command, ["rollouts", str(played_run), str(file), *options])
    assert exported.exit_code == 0, exported.output
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    project = project_with(tmp_path, model, rows, Plant(training={**training, "steps_per_batch": 4}, epochs=8))
    result = await project.run()
    assert result.summary.rollouts == 2 * 20
    assert result.summary.verdict == "improved"

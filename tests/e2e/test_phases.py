"""A run with phases: demonstrations first, then the workflow's own rollouts; one journal, and a verdict for each."""

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.backend_here import backend_here
from fakes.made_once import made_once
from fakes.planted_project import CLASSES, COLOURS, DONE, NOISE, Plant, PlantedProject, make_word_model
from nat.runs.journal import Journal
from nat.runs.records import Phase

RIGHT = f"{COLOURS[0]} {DONE}"


@pytest.fixture(scope="module")
def model(shared_folder) -> Path:
    return made_once(shared_folder / "word_model", make_word_model)


@pytest.fixture(autouse=True)
def _backend(monkeypatch):
    monkeypatch.setattr("nat.plugins.local.llm.running_backend", backend_here)


def phased(folder: Path, model: Path, *, epochs: tuple[int, int] = (5, 3), **finetuning: Any) -> PlantedProject:
    """Five epochs on demonstrations, then three by policy gradient."""
    project = PlantedProject(folder, model, Plant(per_class=4, finetuning=finetuning))
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"{CLASSES[n % 4]} {NOISE[n]}"},
                {"role": "assistant", "content": RIGHT},
            ]
        }
        for n in range(32)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = project.config
    config["trajectory_builders"]["demonstrations"] = {
        "_type": "dataset_traj_builder",
        "file_path": str(folder / "rows.jsonl"),
    }
    config["trainer_adapters"]["imitate"] = {
        "_type": "local_trainer_adapter",
        "llm": "student",
        "training": {"algorithm": "sft", "steps_per_batch": 4},
    }
    del config["finetuning"]["num_epochs"]
    config["finetuning"]["phases"] = [
        {"name": "sft", "num_epochs": epochs[0], "trajectory_builder": "demonstrations", "trainer_adapter": "imitate"},
        {"name": "grpo", "num_epochs": epochs[1]},
    ]
    return project


async def test_phases_train_one_model_with_one_journal(tmp_path, model):
    """Epochs are numbered through; every phase begins with the weights and the scores at the end of the one before."""
    result = await phased(tmp_path, model).run()
    summary, run_dir = result.summary, result.run_dir
    sft, grpo = summary.phases
    assert [(each.name, each.first_epoch, each.epochs) for each in summary.phases] == [("sft", 0, 5), ("grpo", 5, 3)]
    assert (summary.epochs, summary.before, summary.after) == (8, sft.before, grpo.after)
    assert sft.after == grpo.before
    assert sft.verdict == "improved"
    with Journal.open(run_dir, read_only=True) as journal:
        assert [record.epoch for record in journal.validations()] == [0, 5, 8]
        assert [epoch.phase for epoch in journal.epochs()] == ["sft"] * 5 + ["grpo"] * 3
        jobs, first = journal.jobs(), next(journal.rollouts(Phase.TRAIN, 5))
    lines = (run_dir / "training_metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["phase"] for line in lines] == ["sft"] * 5 + ["grpo"] * 3
    assert [json.loads(line)["epoch"] for line in lines] == list(range(8))
    assert len({job.id for job in jobs}) == 8
    assert [job.training["algorithm"] for job in jobs] == ["sft"] * 5 + ["lite_ppo"] * 3
    assert set(first.policy_versions) == {jobs[4].policy_version}
    assert json.loads((run_dir / "summary.json").read_text())["phases"][1]["name"] == "grpo"

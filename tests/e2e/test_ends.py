"""However a run ends, what it has trained is judged, and its folder says how it ended."""

import json

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from nat.cli.commands.finetune import summary_text
from nat.runs.records import BestMeasure, RunState, Verdict


class Learner(Coin):
    """A model that answers like a coin, and always right once `project` has trained `after` jobs.

    Held-out questions are answered wrong before, so that the verdict can tell.
    """

    def __init__(self, after: int = 2) -> None:
        super().__init__()
        self.after = after
        self.project: FinetuningProject | None = None

    def __call__(self, request) -> Say:
        assert self.project is not None
        if len(self.project.adapter.submitted) >= self.after:
            return Say("right")
        return Say("wrong") if "held-out" in request.last_text else super().__call__(request)


@pytest.fixture
async def project(tmp_path):
    """Ten epochs of a model that has learned all after two."""
    learner = Learner()
    async with OpenAIServer(learner) as server:
        learner.project = project = FinetuningProject(tmp_path, server)
        project.finetuning["num_epochs"] = 10
        with project.registered():
            yield project


async def test_a_solved_task_is_a_success(project, caplog):
    """Three epochs with the highest reward end the run with a verdict, the best model, a summary and no alarm."""
    result = await project.run(validation_dataset=str(project.held_out), validation_interval=1)
    assert result.summary.verdict is Verdict.IMPROVED
    assert result.summary.epochs == 5
    best = result.summary.best
    assert best is not None
    assert (best.epoch, best.score, best.measure) == (2, 1.0, BestMeasure.HELD_OUT)
    why = "Solved: every training rollout of epochs 3 to 5 has the highest reward of the run, 1"
    with project.journal() as journal:
        assert journal.info().state is RunState.COMPLETED
        assert (journal.info().message or "").startswith(why)
    assert json.loads((result.run_dir / "summary.json").read_text())["ended_early"].startswith(why)
    assert why in summary_text(result, result.run_dir / "c.yml")
    assert not [record for record in caplog.records if record.levelname != "INFO" and "alarm" in record.message]

"""A run keeps its best weights, names them in its results and exports them on request."""

import json
from pathlib import Path

import pytest

from fakes.finetuning_project import AdapterConfig, Coin, FinetuningProject, RememberingAdapter
from fakes.openai_server import OpenAIServer
from nat.cli.commands.finetune import summary_text
from nat.data_models.finetuning import TrainingStatusEnum
from nat.errors import TrainingFailed
from nat.finetuning.interfaces.trainer_adapter import CheckpointKeeper, KeptCheckpoint
from nat.finetuning.progress import RunProgress
from nat.runs.records import BestEpoch, BestMeasure


class KeepingAdapter(RememberingAdapter, CheckpointKeeper):
    """An adapter that names its weights by the number of jobs and records which it must keep."""

    def __init__(self, project: FinetuningProject) -> None:
        super().__init__(AdapterConfig())
        self.kept: list[int] = []
        self._project = project

    async def keep_best(self) -> KeptCheckpoint:
        self.kept.append(len(self.submitted))
        folder = (self._project.output_dir / "latest").resolve() / "checkpoints" / f"step_{self.kept[-1]:06d}"
        return KeptCheckpoint(name=f"tiny@{self.kept[-1]}", path=str(folder))

    async def export_best(self, name: str) -> Path | None:
        return (self._project.output_dir / "latest").resolve() / name if self.kept else None


class Told(RunProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def held_out_best(score: float, epoch: int) -> BestEpoch:
    path = f"checkpoints/step_{epoch:06d}" if epoch else None
    weights = f"tiny@{epoch}" if epoch else None
    return BestEpoch(epoch=epoch, score=score, measure=BestMeasure.HELD_OUT, weights=weights, checkpoint=path)


@pytest.fixture
async def project(tmp_path):
    """Eight held-out questions; `project.known` says how many the model answers after each number of updates."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.adapter = KeepingAdapter(project)
        project.known = [2, 6, 6, 1, 1]

        async def agent(question, ask):
            if not question.startswith("held out"):
                return await ask(question)
            return "right" if int(question[-1]) < project.known[len(project.adapter.submitted)] else "wrong"

        project.agent = agent
        rows = [{"id": str(n), "question": f"held out {n}", "answer": "right"} for n in range(8)]
        project.held_out.write_text(json.dumps(rows))
        project.finetuning["num_epochs"] = 4
        with project.registered():
            yield project


def held_out(project):
    return {"validation_dataset": str(project.held_out), "validation_interval": 1}


async def test_the_highest_held_out_score_wins_and_of_equal_ones_the_earliest(project):
    """The epoch is in the journal, in summary.json and in the output, with the command that exports it."""
    result = await project.run(**held_out(project))
    assert project.adapter.kept == [1]
    with project.journal() as journal:
        assert journal.find(BestEpoch) == held_out_best(0.75, 1)
    assert json.loads((result.run_dir / "summary.json").read_text())["best"]["checkpoint"] == "checkpoints/step_000001"
    printed = summary_text(result, project.given())
    assert "the best: held-out score 0.750 after epoch 1" in printed
    assert "the highest of 5 validations on the same examples, so probably too high" in printed
    assert f"{result.run_dir}/checkpoints/step_000001\n" in printed
    assert f"Export it  nat runs export {result.run_dir}\n" in printed


@pytest.mark.parametrize(
    ("failed_score", "told"),
    [
        (None, "4 of 8 fail since training (first error: ValueError: the reply is not JSON)"),
        (0, "0.500 → 0.500 on the"),
    ],
)
async def test_weights_that_make_the_agent_crash_are_not_the_best(project, failed_score, told):
    """Right on half, wrong on half; after training right on the other half, and a crash on the first."""
    project.finetuning["reward_function"]["failed_score"] = failed_score

    async def agent(question, ask):
        if not question.startswith("held out"):
            return await ask(question)
        trained, known = bool(project.adapter.submitted), int(question[-1]) < 4
        if trained and known:
            raise ValueError("the reply is not JSON")
        return "right" if trained or known else "wrong"

    project.agent = agent
    result = await project.run(**held_out(project))
    assert result.summary.best == held_out_best(0.5, 0)
    assert project.adapter.kept == []
    text = summary_text(result, Path("c.yml"))
    assert "No improvement shown" in text
    assert told in text


async def test_the_start_may_have_been_the_best(project):
    """If the starting model is the best, no checkpoint is kept."""
    project.known = [6, 5, 4, 3, 3]
    result = await project.run(**held_out(project))
    assert project.adapter.kept == []
    assert result.summary.best == held_out_best(0.75, 0)
    assert "the one that the run started from (held-out score 0.750 before training)" in summary_text(
        result, project.given()
    )


async def test_without_held_out_examples_the_training_reward_decides(project):
    """Rollouts of an epoch use the weights before its update; if all epochs are equal, the first is the best."""
    result = await project.run()
    assert project.adapter.kept == []
    assert result.summary.best == BestEpoch(epoch=0, score=0.5, measure=BestMeasure.TRAINING)


async def test_a_run_that_fails_names_the_best(project):
    """The error names the best checkpoint, its folder and the next command."""
    project.adapter.outcomes = [{}, {}, {"status": TrainingStatusEnum.FAILED, "message": "out of memory"}]
    told = Told()
    with pytest.raises(TrainingFailed):
        await project.run(progress=told, **held_out(project))
    run_dir = (project.output_dir / "latest").resolve()
    assert (
        f"Best model: {project.output_dir / run_dir.name / 'checkpoints/step_000001'} (held-out score 0.750 after "
        f"epoch 1); as a plain model: `nat runs export {project.output_dir / run_dir.name}`"
    ) in told.texts
    assert told.texts[-1].endswith(f"nat diagnose {project.output_dir / run_dir.name}")


async def test_export_best_writes_it_as_a_model(project):
    """Its folder is in the summary."""
    project.finetuning["export_best"] = True
    told = Told()
    result = await project.run(progress=told, **held_out(project))
    assert result.summary.best_model == "best_model"
    assert not [text for text in told.texts if "best_model" in text]
    folder = (project.output_dir / "latest").resolve() / "best_model"
    assert f"\nModel      {folder}\n" in summary_text(result, project.given())


async def test_an_adapter_without_checkpoints_is_reported(project):
    """The best epoch is still recorded; the request to export it fails with the reason."""
    project.adapter = RememberingAdapter(AdapterConfig())
    project.finetuning["export_best"] = True
    told = Told()
    result = await project.run(progress=told, **held_out(project))
    assert result.summary.best is not None
    assert (result.summary.best.epoch, result.summary.best.weights) == (1, None)
    assert any("no model was written; the best model: not kept, as the adapter keeps no" in text for text in told.texts)

"""However a run ends, what it has trained is judged, and its folder says how it ended."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.finetuning_project import AdapterConfig, Coin, FinetuningProject, RememberingAdapter, blank_plot
from fakes.openai_server import OpenAIServer, Say
from nat.cli.commands.finetune import summary_text
from nat.data_models.finetuning import FinetuneRunConfig, TrainingJobRef, TrainingJobStatus, TrajectoryCollection
from nat.errors import (
    BackendUnreachable,
    EvaluationError,
    NoTrajectories,
    RewardCollapse,
    TooManyFailures,
    TrainingFailed,
)
from nat.finetuning import ending
from nat.finetuning.runtime import run_finetuning
from nat.runs.preemption import Preempted, Preemption
from nat.runs.records import RunState, RunSummary, Verdict

LEARNED = 2
"""Jobs after which the model of these tests answers the held-out questions."""


class Learner(Coin):
    """A model that answers held-out questions wrong before training, and training questions as `training` says."""

    def __init__(self) -> None:
        super().__init__()
        self.training: Callable[[int], str | None] = lambda _: None
        """Its answer after so many jobs; None tosses a coin."""
        self.project: FinetuningProject

    def __call__(self, request) -> Say:
        done = len(self.project.adapter.submitted)
        if "held-out" in request.last_text:
            return Say("right" if done >= LEARNED else "wrong")
        answer = self.training(done)
        return super().__call__(request) if answer is None else Say(answer)


class LearningProject(FinetuningProject):
    """A project of that model."""

    model: Learner


class Interrupted(RememberingAdapter):
    """An adapter whose third job is interrupted, and ends as `after` says."""

    def __init__(
        self,
        *,
        after: str = "canceled",
        waiting: bool = True,
        cancel: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(AdapterConfig())
        self.outcomes = [{}, {}, {"status": after}]
        self._waiting = waiting
        self._cancel = cancel or _cancel
        self._canceled = False

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        if len(self.submitted) == LEARNED and not self._waiting:
            self._cancel()
            await asyncio.sleep(0)
        return await super().submit(trajectories)

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        if len(self.submitted) > LEARNED and not self._canceled:
            self._canceled = True
            self._cancel()
            await asyncio.sleep(0)
        return await super().wait_until_complete(ref, poll_interval)


def _cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def fails_after(jobs: int, share: int = 4):
    """An agent that fails on so many of the four training questions once so many jobs are done."""

    def prepare(project: LearningProject) -> None:
        async def agent(question, ask):
            if question.startswith("q") and int(question[1]) < share and len(project.adapter.submitted) >= jobs:
                raise RuntimeError("the tool is gone")
            return await ask(question)

        project.agent = agent

    return prepare


def answers(training: Callable[[int], str | None]):
    def prepare(project: LearningProject) -> None:
        project.model.training = training

    return prepare


def third_job(**outcome):
    def prepare(project: LearningProject) -> None:
        project.adapter.outcomes = [{}, {}, outcome]

    return prepare


def interrupted(**options):
    def prepare(project: LearningProject) -> None:
        project.adapter = Interrupted(**options)

    return prepare


def unhealthy(project: LearningProject) -> None:
    """The backend is gone when the rollouts fail."""
    fails_after(LEARNED)(project)
    agent = project.agent

    async def failing(question, ask):
        project.adapter.healthy = len(project.adapter.submitted) < LEARNED
        return await agent(question, ask)

    project.agent = failing


def collapses(project: LearningProject) -> None:
    """All answers are wrong after three epochs."""
    project.finetuning["num_epochs"] = 20
    project.finetuning["guards"] = {"epochs_without_signal": 20}
    path = project.write_rows("many.json", 40)
    project.config["eval"]["general"]["dataset"]["file_path"] = str(path)
    project.model.training = lambda jobs: "wrong" if jobs >= 3 else None


def broken_validation(project: LearningProject) -> None:
    """No held-out example gets a score after training."""
    project.finetuning["num_epochs"] = 3

    async def agent(question, ask):
        if question.startswith("held-out") and len(project.adapter.submitted) >= LEARNED + 1:
            raise RuntimeError("the tool is gone")
        return await ask(question)

    project.agent = agent


@dataclass(frozen=True)
class End:
    """How a run is made to end, and what it must leave."""

    prepare: Callable[[LearningProject], None]
    raises: type[BaseException] | None
    why: str
    """In the summary."""
    judged: int | None
    """Epochs behind the weights of the verdict."""
    state: RunState = RunState.FAILED
    verdict: Verdict = Verdict.IMPROVED


ENDS = {
    "solved": End(answers(lambda n: "right" if n >= 2 else None), None, "Solved: ", 5, RunState.COMPLETED),
    "early stopping": End(
        lambda project: project.finetuning.update(early_stopping={"patience": 1}),
        None,
        "Stopped early",
        8,
        RunState.COMPLETED,
    ),
    "the reward collapses": End(collapses, RewardCollapse, "the mean reward fell", 4),
    "all rollouts fail": End(fails_after(2), NoTrajectories, "the tool is gone", 2),
    "too many rollouts fail": End(fails_after(2, share=3), TooManyFailures, "the tool is gone", 2),
    "a failed update": End(third_job(status="failed", message="out of memory"), TrainingFailed, "out of memory", 2),
    "Ctrl-C in the rollouts": End(interrupted(waiting=False), asyncio.CancelledError, "", 2, RunState.CANCELED),
    "Ctrl-C in an update": End(interrupted(), asyncio.CancelledError, "", 2, RunState.CANCELED),
    "Ctrl-C as an update ends": End(
        interrupted(after="completed"), asyncio.CancelledError, "", None, RunState.CANCELED
    ),
    "a dead backend": End(unhealthy, BackendUnreachable, "unhealthy training backend", None),
    "no held-out score": End(broken_validation, EvaluationError, "none of 8 held-out examples got a score", None),
}
QUICK = {"solved", "a failed update", "Ctrl-C in an update"}


@pytest.fixture
async def project(tmp_path):
    """Ten epochs, with eight held-out examples that are played before the first and after every fourth."""
    model = Learner()
    async with OpenAIServer(model) as server:
        project = model.project = LearningProject(tmp_path, server)
        project.model = model
        project.finetuning["num_epochs"] = 10
        with project.registered():
            yield project


def held_out(project: FinetuningProject) -> dict[str, Any]:
    return {"validation_dataset": str(project.held_out), "validation_interval": 4}


@pytest.mark.parametrize(
    "end",
    [pytest.param(end, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, end in ENDS.items()],
)
async def test_each_end_leaves_a_verdict_and_a_summary(project, end):
    """The last weights are judged, once, if they are known and can be played; the summary says how the run ended."""
    end.prepare(project)
    if end.raises is None:
        result = await project.run(**held_out(project))
        assert end.why in summary_text(result, FinetuneRunConfig(config_file=Path("c.yml")))
    else:
        with pytest.raises(end.raises):
            await asyncio.create_task(project.run(**held_out(project)))
    run_dir = (project.output_dir / "latest").resolve()
    with project.journal() as journal:
        info, epochs = journal.info(), journal.num_epochs()
    summary = json.loads((run_dir / "summary.json").read_text())
    assert info.state is end.state
    assert summary["state"] == end.state
    assert summary["epochs"] == epochs
    assert end.why in (info.message or "")
    assert end.why in summary["ended_early"]
    assert summary["judged_epoch"] == end.judged
    assert summary["verdict"] == (None if end.judged is None else end.verdict)
    if summary["verdict"] == Verdict.IMPROVED:
        assert summary["best"]["epoch"] >= LEARNED
        assert summary["best"]["score"] == 1.0
    for name in ("training_metrics.jsonl", "reward_history.json", "validation_history.json", "reward_plot.png"):
        assert (run_dir / name).exists(), name
    assert summary["plot"] == "reward_plot.png"


@pytest.mark.parametrize("known", [True, False])
async def test_an_interrupted_run_does_not_wait_long_for_its_verdict(project, caplog, monkeypatch, known):
    """A validation that takes longer is stopped, or not begun if an earlier one shows it; the last verdict stays."""
    interrupted(waiting=False)(project)
    monkeypatch.setattr(ending, "SECONDS_AFTER_INTERRUPT", 1e-6 if known else 3.0)

    async def agent(question, ask):
        if question.startswith("held-out") and len(project.adapter.submitted) == LEARNED and not known:
            await asyncio.sleep(60)
        return await ask(question)

    project.agent = agent
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(project.run(**held_out(project)))
    reason = "after Ctrl-C, no validation begins that may take more than 1e-06 s; the last one took "
    reason = reason if known else "the validation did not end within 3 s"
    assert f"The weights after epoch 2 are not judged: {reason}" in caplog.text
    with project.journal() as journal:
        assert journal.info().state is RunState.CANCELED
        summary = journal.find(RunSummary)
    assert summary is not None
    assert summary.judged_epoch is None


@pytest.mark.parametrize("waiting", [False, True], ids=["in the rollouts", "in an update"])
async def test_a_preempted_run_leaves_for_later_what_can_be_done_later(project, caplog, waiting):
    """It plays no validation, draws no plot and exports nothing; its summary says how it ended."""
    preemption, drawn = Preemption(), []

    def cancel() -> None:
        preemption.begin()
        _cancel()

    async def plot(run_dir: Path) -> str | None:
        drawn.append(run_dir)
        return await blank_plot(run_dir)

    project.adapter = Interrupted(waiting=waiting, cancel=cancel)
    project.finetuning["export_best"] = True
    given = project.given(**held_out(project))
    with pytest.raises(Preempted, match="interrupted by SIGTERM"):
        await asyncio.create_task(run_finetuning(given, plotter=plot, preemption=preemption))
    assert not drawn
    assert "export_best" not in caplog.text
    with project.journal() as journal:
        info, summary = journal.info(), journal.find(RunSummary)
        assert [validation.epoch for validation in journal.validations()] == [0]
        assert journal.num_epochs() == LEARNED
    assert (info.state, info.message) == (RunState.INTERRUPTED, "interrupted by SIGTERM")
    assert summary is not None
    assert (summary.state, summary.ended_early) == (RunState.INTERRUPTED, "interrupted by SIGTERM")
    assert "Go on with the run: nat finetune --resume" in caplog.text

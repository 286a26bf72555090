"""A run that cannot learn ends with an error that has the numbers and a remedy, and the journal records it."""

import asyncio
import itertools

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from fakes.processes import refused_port
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvaluatorBaseConfig
from nat.errors import (
    BackendUnreachable,
    NatError,
    NoLearningSignal,
    NoTrajectories,
    RewardCollapse,
    TooManyFailures,
    TrainingFailed,
)
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_evaluator
from nat.runs.records import Phase, RunState


async def failed_run(tmp_path, script=None, *, agent=None, error=NatError, prepare=None):
    """The error's text, and the project after the run."""
    async with OpenAIServer(script or Coin()) as server:
        project = FinetuningProject(tmp_path, server, **({"agent": agent} if agent else {}))
        project.finetuning["num_epochs"] = 12
        if prepare is not None:
            prepare(project)
        with project.registered(), pytest.raises(error) as raised:
            await project.run()
    with project.journal() as journal:
        assert journal.info().state is RunState.FAILED
        assert journal.info().message == str(raised.value)
    assert project.closed == project.built
    assert raised.value.hint, "an error says what to do"
    return str(raised.value), project


async def test_all_rollouts_failed(tmp_path):
    """The error counts the causes and quotes the most frequent error; failed rollouts are recorded."""

    async def broken(question, ask):
        raise RuntimeError("no such tool: calculator")

    text, project = await failed_run(tmp_path, agent=broken, error=NoTrajectories)
    assert "8 rollouts were left out" in text
    assert "RuntimeError: no such tool: calculator" in text
    with project.journal() as journal:
        assert len(list(journal.rollouts(Phase.TRAIN, 0))) == 8


async def test_a_target_function_that_was_never_seen(tmp_path):
    """The error shows the names that were seen beside the configured one."""

    def prepare(project):
        project.finetuning["target_functions"] = ["plannr"]

    text, _ = await failed_run(tmp_path, error=NoTrajectories, prepare=prepare)
    assert "target_functions: plannr; LLM calls came from: <workflow> (8 calls)" in text


async def test_too_many_failures(tmp_path):
    """More failed rollouts than `max_failure_rate` end the run, even if others could be trained on."""

    async def shaky(question, ask):
        if question in ("q0", "q1", "q2"):
            raise ConnectionError("the tool server is gone")
        return await ask(question)

    text, _ = await failed_run(tmp_path, agent=shaky, error=TooManyFailures)
    assert "6 of 8 rollouts failed" in text
    assert "the tool server is gone" in text


async def test_an_evaluator_that_hangs(tmp_path):
    """Scoring has a deadline; rollouts that it stops have their own cause, and the error names the option."""

    class Hangs(BaseEvaluator):
        async def evaluate_item(self, item):
            await asyncio.sleep(1000)

    class HangsConfig(EvaluatorBaseConfig, name="hangs"):
        pass

    def prepare(project):
        @register_evaluator(config_type=HangsConfig)
        async def hangs(config, builder):
            yield EvaluatorInfo(config=config, evaluate_fn=Hangs().evaluate, description="never ends")

        project.config["eval"]["evaluators"]["match"] = {"_type": "hangs"}
        project.config["eval"]["general"]["scoring_timeout"] = 0.05

    with pushed_catalog():
        text, _ = await failed_run(tmp_path, error=NoTrajectories, prepare=prepare)
    assert "8 x the evaluator ran into its deadline" in text
    assert "no score within 0.05 s (eval.general.scoring_timeout)" in text


async def test_equal_rewards_epoch_after_epoch(tmp_path):
    """So many epochs with equal rewards in every group as the guard allows end the run; nothing was submitted."""

    def prepare(project):
        project.finetuning["guards"] = {"epochs_without_signal": 3}

    text, project = await failed_run(tmp_path, lambda _request: Say("wrong"), error=NoLearningSignal, prepare=prepare)
    assert "rewards from 0 to 0" in text
    assert "the evaluator that finetuning.reward_function names" in text
    assert project.adapter.submitted == []
    with project.journal() as journal:
        assert len(journal.epochs()) == 3


async def test_a_short_run_without_any_job_fails_too(tmp_path):
    """A run of one epoch that trained nothing fails, although the guard needs more epochs."""

    def prepare(project):
        project.finetuning["num_epochs"] = 1

    text, _ = await failed_run(tmp_path, lambda _request: Say("right"), error=NoLearningSignal, prepare=prepare)
    assert "rewards from 1 to 1" in text


@pytest.mark.parametrize("num_epochs", [2, 12])
async def test_jobs_that_train_nothing(tmp_path, caplog, num_epochs):
    """A completed job that trained no group is a warning with its numbers; a run with only such jobs fails."""

    def prepare(project):
        project.finetuning["num_epochs"] = num_epochs
        counts = {"trained_groups": 0.0, "trained_tokens": 0.0}
        project.adapter.outcomes = [{"metadata": {"metrics": counts}}] * 3

    text, project = await failed_run(tmp_path, error=NoLearningSignal, prepare=prepare)
    assert "groups trained: 0 of 4 submitted, 0 of 4 submitted" in text
    assert caplog.text.count("did not train 100% of the 4 groups that could teach") == 1
    with project.journal() as journal:
        assert [job.tokens_trained for job in journal.jobs()] == [0] * min(3, num_epochs)


async def test_a_reward_collapse(tmp_path):
    """A reward far below that of the first epochs ends the run; the error has both numbers."""
    answered = itertools.count()

    def collapsing(_request) -> Say:
        number = next(answered)
        rarely, mostly = number % 8 == 0, number % 4 > 0
        return Say("right" if (mostly if number < 3 * 80 else rarely) else "wrong")

    def prepare(project):
        project.config["eval"]["general"]["dataset"]["file_path"] = str(project.write_rows("many.json", 40))
        project.finetuning["guards"] = {"epochs_without_signal": 10}

    text, _ = await failed_run(tmp_path, collapsing, error=RewardCollapse, prepare=prepare)
    assert "the mean reward fell from" in text


async def test_a_failed_job(tmp_path):
    """The error quotes the backend's reason for a failed job, and the run ends."""

    def prepare(project):
        project.adapter.outcomes = [{}, {"status": "failed", "message": "the gradient is not finite"}]

    text, project = await failed_run(tmp_path, error=TrainingFailed, prepare=prepare)
    assert "the gradient is not finite" in text
    assert len(project.adapter.submitted) == 2
    with project.journal() as journal:
        assert [job.status for job in journal.jobs()] == ["completed", "failed"]


async def test_an_unhealthy_backend(tmp_path):
    """The backend's health is checked before the first rollout."""

    def prepare(project):
        project.adapter.healthy = False

    text, project = await failed_run(tmp_path, error=BackendUnreachable, prepare=prepare)
    assert "RememberingAdapter" in text
    assert project.adapter.submitted == []


async def test_a_dead_llm_server_is_an_error_before_the_first_rollout(tmp_path, monkeypatch):
    """The error names the LLM's key in the YAML, without a minute of retries first."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def prepare(project):
        dead = {"_type": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "api_key": "k"}
        project.config["llms"]["student"] |= dead
        del project.config["llms"]["student"]["max_retries"]
        project.config["llms"]["unused"] = {**dead, "model_name": "x", "base_url": "http://nobody.invalid/v1"}
        project.clients = ["student"]

    with refused_port() as port:
        text, project = await failed_run(tmp_path, error=BackendUnreachable, prepare=prepare)
    assert "llms.student.base_url: no server answers at http://127.0.0.1:" in text
    assert project.adapter.submitted == []


async def test_cleanup_never_hides_the_first_error(tmp_path):
    """An error in the trainer's cleanup becomes a note; the run's own error is raised."""

    def prepare(project):
        project.cleanup_error = ValueError("already closed")
        project.adapter.outcomes = [{"status": "failed", "message": "out of memory"}]

    text, _ = await failed_run(tmp_path, error=TrainingFailed, prepare=prepare)
    assert "out of memory" in text
    assert "already closed" not in text

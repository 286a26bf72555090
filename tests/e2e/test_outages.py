"""An LLM's server that is away for a while costs a run time, and nothing else."""

import logging
import time

import pytest

from fakes.finetuning_project import Coin, FinetuningProject, blank_plot
from fakes.openai_server import OpenAIServer, Refuse, Say
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.errors import BackendUnreachable, TrainingFailed
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.finetuning.runtime import run_finetuning
from nat.registry.decorators import register_evaluator
from nat.runs.records import Phase, RunState


class JudgeConfig(EvaluatorBaseConfig, name="test_judge"):
    llm: LLMRef = LLMRef("judge")


class Judge(BaseEvaluator):
    """An evaluator as users write them: it asks its LLM, and knows nothing of servers that are away."""

    def __init__(self, client) -> None:
        super().__init__()
        self._client = client

    async def evaluate_item(self, item: EvalInputItem) -> EvalOutputItem:
        messages = [{"role": "user", "content": f"{item.id}: {item.output_obj}"}]
        reply = await self._client.chat.completions.create(model="judge", messages=messages)
        return EvalOutputItem(id=item.id, score=float(reply.choices[0].message.content), reasoning="")


class Server:
    """A script that answers with `reply`, unless it is away."""

    def __init__(self, reply) -> None:
        self.reply = reply
        self.away_for = 0.0
        """Seconds from its first request on."""
        self.away_until: float | None = None
        self.refusals = 0
        self.answers = 0
        self.status = 503

    def __call__(self, request):
        if self.away_until is None:
            self.away_until = time.monotonic() + self.away_for
        if time.monotonic() < self.away_until:
            self.refusals += 1
            return Refuse(self.status, "the model is being loaded")
        self.answers += 1
        return self.reply(request)


@pytest.fixture
def judge() -> Server:
    return Server(lambda request: Say("1.0" if "right" in request.last_text else "0.0"))


@pytest.fixture
def student() -> Server:
    return Server(Coin())


@pytest.fixture
async def project(tmp_path, judge, student):
    """Answers are scored by a judge with a server of its own; calls wait, and there are no other retries."""
    async with OpenAIServer(student) as server, OpenAIServer(judge) as judging:
        project = FinetuningProject(tmp_path, server)
        llm = project.config["llms"]["student"]
        project.config["llms"]["judge"] = {**llm, "base_url": judging.base_url}
        project.config["eval"]["evaluators"]["match"] = {"_type": "test_judge"}
        project.config["eval"]["general"] |= {"outage_timeout": 12, "item_timeout": 2.0, "scoring_timeout": 2.0}
        project.finetuning["max_failure_rate"] = 0.0
        with project.registered():
            register_evaluator(config_type=JudgeConfig)(built)
            yield project


async def built(config, builder):
    judge = Judge(await builder.get_llm(config.llm, "openai"))
    yield EvaluatorInfo(config=config, evaluate_fn=judge.evaluate, description="asks a judge")


@pytest.mark.slow
@pytest.mark.parametrize("away", ["judge", "student"])
async def test_a_run_waits_for_a_server_and_goes_on(project, request, caplog, away):
    """Longer than any time limit: nothing fails, and the log says so once."""
    server = request.getfixturevalue(away)
    server.away_for = 3.0
    caplog.set_level(logging.WARNING)
    await project.run()
    assert server.refusals >= 4
    told = [record.getMessage() for record in caplog.records if "the server of" in record.getMessage()]
    assert len(told) == 2
    assert f"the server of LLM '{away}' at localhost:" in told[0]
    assert "status 503: the model is being loaded" in told[0]
    assert "answers again after" in told[1]
    with project.journal() as journal:
        first, second = journal.epochs()
        assert [record.error for record in journal.rollouts(Phase.TRAIN, 0)] == [None] * 8
    assert (first.left_out, second.left_out) == ({}, {})


async def test_a_run_that_gave_up_goes_on_where_it_was(project, judge, student):
    """It ends by what was away, not by what that led to; resumed, it plays no rollout again and asks for the scores."""
    project.config["eval"]["general"]["outage_timeout"] = 1.0
    judge.away_for = float("inf")
    with pytest.raises(BackendUnreachable, match=r"the server of LLM 'judge' at .* has been away for 1 s") as error:
        await project.run()
    assert "status 503: the model is being loaded" in error.value.message
    assert "nat finetune --resume" in str(error.value.hint)
    run_dir = (project.output_dir / "latest").resolve()
    with project.journal() as journal:
        assert journal.info().state is RunState.FAILED
        assert journal.num_epochs() == 0
    judge.away_until, played = 0.0, student.answers
    assert played == 8
    await run_finetuning(project.given(), resume=run_dir)
    with project.journal() as journal:
        assert journal.info().state is RunState.COMPLETED
        assert [epoch.left_out for epoch in journal.epochs()] == [{}, {}]
    assert student.answers == 2 * played


@pytest.mark.slow
async def test_a_run_goes_on_while_its_judge_is_away(project, judge, student):
    """A run that is resumed waits for a server, as one that begins."""
    project.adapter.outcomes = [{}, {"status": "failed"}]
    with pytest.raises(TrainingFailed):
        await project.run()
    project.adapter.outcomes, project.finetuning["num_epochs"] = (), 3
    judge.away_until, judge.away_for = None, 3.0
    played = student.answers
    await run_finetuning(project.given(), resume=(project.output_dir / "latest").resolve(), plotter=blank_plot)
    assert judge.refusals > 0
    with project.journal() as journal:
        assert [epoch.left_out for epoch in journal.epochs()] == [{}, {}, {}]
    assert student.answers == played + 8

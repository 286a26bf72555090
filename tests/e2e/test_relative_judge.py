"""A run whose reward is a comparison of generations: in training, in validation, in the probe and in `nat eval`."""

import json
from random import Random

import pytest

from e2e.doc_pages import ROOT, Page
from fakes.finetuning_project import FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from fakes.scripted_judge import Faults, ScriptedJudge
from nat.config.sources import deep_merge, parse_yaml
from nat.data_models.evaluate_runtime import EvaluationRunConfig
from nat.errors import NoTrajectories
from nat.eval.evaluate import EvaluationRun
from nat.runs.records import Phase, Verdict


class Student:
    """A model whose answers get better after `learned` of them, and each of which has its own quality."""

    def __init__(self, learned):
        self.answered = 0
        self.learned = learned

    def __call__(self, request):
        self.answered += 1
        quality = self.answered % 7 / 20 + (0.5 if self.answered > self.learned else 0)
        return Say(f"An answer of quality {quality:.6f}.")


class Servers:
    """A student and a judge, which are two LLMs of one server."""

    def __init__(self, learned=10_000, faults=Faults()):  # noqa: B008 - a frozen record
        self.student = Student(learned)
        self.judge = ScriptedJudge(faults, Random(0))
        self.judged = []

    def __call__(self, request):
        if request.body["model"] != "judge":
            return self.student(request)
        self.judged.append(request.body)
        return Say(self.judge.reply(request.last_text))


def project_of(folder, server):
    project = FinetuningProject(folder, server)
    project.clients = ("student",)
    project.config["llms"]["judge"] = project.config["llms"]["student"] | {"model_name": "judge"}
    project.config["trainer_adapters"]["adapter"]["llm"] = "student"
    project.config["trajectory_builders"]["builder"]["num_generations"] = 4
    project.config["eval"]["evaluators"]["better"] = {"_type": "relative_judge", "llm_name": "judge"}
    project.finetuning["reward_function"]["name"] = "better"
    return project


@pytest.fixture
async def served(tmp_path):
    servers = Servers()
    async with OpenAIServer(servers) as server:
        project = project_of(tmp_path, server)
        with project.registered():
            yield project, servers


def quality(text):
    return float(text.split()[-1].rstrip("."))


async def test_generations_are_scored_against_each_other(served):
    """A group's rewards are the judge's scores of its answers, and the epoch adds up what they took."""
    project, _ = served
    await project.run()
    with project.journal() as journal:
        records, [first, _] = list(journal.rollouts(Phase.TRAIN, 0)), journal.epochs()
    for example in {record.example_id for record in records}:
        group = [record for record in records if record.example_id == example]
        assert len(group) == 4
        assert [r.reward for r in group] == pytest.approx([quality(r.output) for r in group])
    assert first.metrics["reward/relative"] == 1
    assert 4 <= first.usage["judge"]["judge"].calls == sum(u.calls for r in records for u in r.judge_usage.values())
    assert first.usage["judge"]["judge"].prompt_tokens > 0


async def test_held_out_answers_are_judged_against_those_before_training(tmp_path):
    """The score before is 0.5 by definition; after, it is the rate of wins, and the verdict is about that."""
    servers = Servers(learned=8 + 2 * 16)  # the first validation and two epochs
    async with OpenAIServer(servers) as server:
        project = project_of(tmp_path, server)
        with project.registered():
            result = await project.run(validation_dataset=str(project.held_out))
        with project.journal() as journal:
            after = list(journal.rollouts(Phase.VALIDATION, 2))
    assert (result.summary.before, result.summary.after) == (0.5, 1.0)
    assert result.summary.verdict is Verdict.IMPROVED
    assert [record.judge_usage["judge"].calls for record in after] == [2.0] * 8
    assert after[0].reasoning["after"] > after[0].reasoning["before"]


async def test_a_judge_that_fails_leaves_its_groups_out(tmp_path):
    """No reward is made up: the run ends with the cause and the count."""
    async with OpenAIServer(Servers(faults=Faults(invalid=1))) as server:
        project = project_of(tmp_path, server)
        with project.registered(), pytest.raises(NoTrajectories, match="no valid scores in two replies"):
            await project.run()


async def test_an_evaluation_compares_its_repetitions(served):
    """`nat eval --reps 4` has groups of four; a single repetition has no score, and the reason is named."""
    project, _ = served
    run = EvaluationRunConfig(config_file=project.given().config_file, reps=4, write_output=False)
    output = await EvaluationRun(run).run_and_evaluate()
    scores = output.results_of("better").eval_output_items
    assert len(scores) == 16
    assert all(score.error is None for score in scores)
    output = await EvaluationRun(run.model_copy(update={"reps": 1})).run_and_evaluate()
    assert {score.score for score in output.results_of("better").eval_output_items} == {None}
    assert "only one with an answer" in output.results_of("better").eval_output_items[0].error
    assert json.loads(output.model_dump_json())["evaluation_results"]


async def test_the_guides_configuration_trains(served, monkeypatch):
    """The YAML of docs/recipes/judge.md, with an agent and a trainer, scores by its judge and its rubric."""
    project, servers = served
    [block] = [b for b in Page(ROOT / "docs/recipes/judge.md").blocks if b.language == "yaml"]
    monkeypatch.setenv("JUDGE_URL", project.config["llms"]["student"]["base_url"])
    project.config = deep_merge(project.config, parse_yaml(block.text))
    result = await project.run(validation_dataset=str(project.held_out))
    assert result.summary.before == 0.5
    assert "solves the customer's problem" in servers.judged[0]["messages"][0]["content"]
    assert servers.judged[0]["temperature"] == 0

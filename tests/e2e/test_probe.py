"""`nat probe` with a tiny model that samples its answers: each reason why training has no signal is found."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import contextmanager

import pytest

from fakes.finetuning_project import FinetuningProject
from fakes.keys import KEY
from fakes.running_server import running
from fakes.tiny_model import make_tiny_model
from nat.backend.inference.engine import Engine
from nat.backend.inference.worker import Worker
from nat.backend.model_loader import load_model
from nat.backend.server.app import create_app
from nat.builder.evaluator import EvaluatorInfo
from nat.cli.main import exit_code
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem, EvaluatorBaseConfig
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.registry.decorators import register_evaluator
from nat.runs.records import Phase

Score = Callable[[EvalInputItem], float]


class ScoreConfig(EvaluatorBaseConfig, name="test_score"):
    pass


class Scores(BaseEvaluator):
    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    async def evaluate_item(self, item):
        return EvalOutputItem(id=item.id, score=self.score(item), reasoning="")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    path = make_tiny_model(tmp_path_factory.mktemp("probe") / "tiny", seed=4)
    worker = Worker(Engine(load_model(path), policy_version="tiny@0"))
    yield worker
    worker.close()


class Site:
    """The address of the model, as the project's server."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url


@pytest.fixture
async def site(worker) -> AsyncIterator[Site]:
    async with running(create_app(worker, api_key=KEY)) as client:
        yield Site(f"{client.base_url}/v1".replace("//v1", "/v1"))


@contextmanager
def project_with(tmp_path, site, score: Score, **llm):
    """A project whose six examples have different answers, and whose answers this function scores."""
    project = FinetuningProject(tmp_path, site)
    project.config["llms"]["student"] |= {"api_key": KEY, "max_tokens": 440, **llm}
    project.config["eval"]["evaluators"]["match"] = {"_type": "test_score"}
    project.config["eval"]["general"]["max_concurrency"] = 32
    project.config["trajectory_builders"]["builder"]["num_generations"] = 4
    rows = [{"id": f"{n}", "question": f"q{n}", "answer": f"answer {n}"} for n in range(6)]
    project.dataset.write_text(json.dumps(rows))
    with project.registered():

        async def build(config, builder):
            yield EvaluatorInfo(config=config, evaluate_fn=Scores(score).evaluate, description="a test's score")

        register_evaluator(config_type=ScoreConfig)(build)
        yield project


async def probed(project: FinetuningProject, capsys, *arguments: str) -> tuple[int, dict]:
    """The exit code and the report; the page is printed in a second call, by its own test."""
    path = project.given().config_file
    command = ["--log-level", "error", "probe", "--config_file", str(path), "--json", *arguments]
    code = await asyncio.to_thread(exit_code, command)
    return code, json.loads(capsys.readouterr().out)


def odd(item: EvalInputItem) -> float:
    """A score that the model's answers get about half of the time."""
    return float(len(item.output_obj) % 2)


def wrong(item: EvalInputItem) -> float:
    """Right is only the dataset's own answer, which this model never gives."""
    return float(item.output_obj == item.expected_output_obj)


def not_another(item: EvalInputItem) -> float:
    """Everything is right but the answers to other examples."""
    return float(not item.output_obj.startswith("answer") or item.output_obj == item.expected_output_obj)


def steady(item: EvalInputItem) -> float:
    return 0.5


async def test_healthy_examples(tmp_path, site, capsys):
    """Groups that differ are a signal; nothing is written and nothing is trained."""
    with project_with(tmp_path, site, odd) as project:
        code, report = await probed(project, capsys)
    assert (code, report["has_signal"], report["findings"]) == (0, True, [])
    assert report["num_rollouts"] == 24
    assert list(project.output_dir.rglob("*")) == []
    assert not project.adapter.submitted


@pytest.mark.parametrize(
    ("score", "cause"),
    [
        (wrong, "too_hard"),
        pytest.param(not_another, "too_easy", marks=pytest.mark.slow),
        pytest.param(steady, "constant_score", marks=pytest.mark.slow),
    ],
    ids=["too hard", "too easy", "constant"],
)
async def test_each_situation_is_told_from_the_others(tmp_path, site, capsys, score, cause):
    """Without a signal a finding has the cause, and the exit code is 1."""
    with project_with(tmp_path, site, score) as project:
        code, report = await probed(project, capsys)
    assert (code, report["has_signal"]) == (1, False)
    assert cause in [finding["cause"] for finding in report["findings"]]


async def test_truncation(tmp_path, site, capsys):
    """A limit of four tokens cuts nearly all answers off; that is the first cause."""
    with project_with(tmp_path, site, wrong, max_tokens=4) as project:
        code, report = await probed(project, capsys)
    assert (code, report["has_signal"]) == (1, False)
    assert report["truncated"] > 0.9
    assert report["findings"][0]["cause"] == "truncation"
    assert "max_tokens" in report["findings"][0]["remedy"]


@pytest.mark.slow
async def test_the_rollouts_are_those_of_the_first_epoch(tmp_path, site, capsys):
    """A run plays the same answers, with the same seeds and rewards."""
    file = tmp_path / "probe.json"
    with project_with(tmp_path, site, odd) as project:
        await probed(project, capsys, "--output", str(file))
        project.finetuning["num_epochs"] = 1
        await project.run()
    with project.journal() as journal:
        trained = {(r.example_id, r.generation, r.seed, r.output, r.reward) for r in journal.rollouts(Phase.TRAIN, 0)}
    fields = ("example_id", "generation", "seed", "output", "reward")
    assert {tuple(map(r.get, fields)) for r in json.loads(file.read_text())["rollouts"]} == trained

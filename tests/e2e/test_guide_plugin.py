"""The guide's own samples run unchanged: plug-in, YAML and entry point."""

import importlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from fakes.finetuning_project import blank_plot
from fakes.openai_server import OpenAIServer, Say, SeenRequest
from fakes.training_backend import FakeTrainingBackend
from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import NoTrajectories
from nat.finetuning.probe import probe
from nat.finetuning.runtime import RunResult, run_finetuning
from nat.registry.catalog import pushed_catalog
from nat.runs.journal import Journal
from nat.runs.records import Phase, RunState, Verdict

YAML = Path(__file__).parents[1] / "fakes" / "guide_plugin" / "config.yml"
KEY = "sk-training-key"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project folder with the guide's data files, and the plug-in installed beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINING_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    (tmp_path / "data").mkdir()
    rows = [{"id": f"{i:03}", "question": f"question {i}", "answer": "42"} for i in range(8)]
    (tmp_path / "data" / "train.json").write_text(json.dumps(rows[:3]))
    (tmp_path / "data" / "val.json").write_text(json.dumps(rows))
    installed = tmp_path / "site" / "my_plugin-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    point = f"[nat.components]\nmy_plugin_{uuid4().hex} = fakes.guide_plugin.register\n"
    (installed / "entry_points.txt").write_text(point)
    return tmp_path


@contextmanager
def installed_plugin() -> Iterator[None]:
    """Register the plug-in through its entry point; forget it at the end."""
    for name in [name for name in sys.modules if name.startswith("fakes.guide_plugin")]:
        del sys.modules[name]
    with pushed_catalog(), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path("site").absolute()))
        yield


class Student:
    """A model that answers at random until it was trained twice, then correctly."""

    def __init__(self, backend: FakeTrainingBackend) -> None:
        self.backend = backend
        self.answers = 0

    def __call__(self, request: SeenRequest) -> Say:
        if request.last_text != "Now answer.":
            return Say("Hm.")
        self.answers += 1
        return Say("42" if self.backend.completed >= 2 or self.answers % 3 == 0 else "41")


@asynccontextmanager
async def served() -> AsyncIterator[tuple[FakeTrainingBackend, OpenAIServer]]:
    async with FakeTrainingBackend(api_key=KEY) as backend, OpenAIServer(Student(backend)) as llm:
        with installed_plugin():
            yield backend, llm


def given(backend: FakeTrainingBackend, llm: OpenAIServer, **fields) -> FinetuneRunConfig:
    override = (
        ("finetuning.num_epochs", "3"),
        ("llms.my_model.base_url", llm.base_url),
        ("trainer_adapters.my_adapter.backend.endpoint", backend.base_url),
    )
    return FinetuneRunConfig(config_file=YAML, override=override, **fields)


async def finetune(backend: FakeTrainingBackend, llm: OpenAIServer, **fields) -> RunResult:
    return await run_finetuning(given(backend, llm, **fields), plotter=blank_plot)


async def test_the_guides_plugin_trains_from_the_guides_yaml(project):
    """Entry point, `_type`s, `${ENV}`, overrides and the three interfaces work as in the guide."""
    async with served() as (backend, llm):
        result = await finetune(backend, llm)
    assert [status.status for status in result.statuses] == ["completed"] * 3
    assert len(backend.jobs) == 3
    job = backend.jobs[0]
    assert (job["learning_rate"], job["batch_size"]) == (1e-5, 8)
    assert [len(group) for group in job["groups"]] == [4, 4, 4]
    roles = [item["role"] for item in job["groups"][0][0]["episode"]]
    assert roles == ["user", "assistant", "user", "assistant"]
    assert job["groups"][0][0]["episode"][1]["logprobs"]["content"]


async def test_a_probe_plays_with_the_plugins_builder(project):
    """Its builder declares no number of examples, and plays those that the probe asks for."""
    async with served() as (backend, llm):
        result = await probe(given(backend, llm), examples=2)
    assert (result.report.num_groups, result.report.num_rollouts, result.report.has_signal) == (2, 8, True)
    assert backend.jobs == []


async def test_the_workflow_is_built_once_for_all_epochs_and_generations(project):
    """`run_eval` uses the open workflow; twelve passes over the data build it once."""
    async with served() as (backend, llm):
        await finetune(backend, llm, validation_dataset="data/val.json")
        assert importlib.import_module("fakes.guide_plugin.my_agent").BUILT == ["built"]


async def test_any_trainer_is_validated_before_and_after(project):
    """The run validates and gives a verdict even if the plug-in's trainer does not validate."""
    async with served() as (backend, llm):
        result = await finetune(backend, llm, validation_dataset="data/val.json")
    written = json.loads((result.run_dir / "summary.json").read_text())
    assert result.summary.verdict is Verdict.IMPROVED
    assert (written["after"], written["verdict"], written["epochs"]) == (1.0, "improved", 3)
    assert written["before"] < 0.5
    assert written["interval"][0] > 0
    assert (result.run_dir / written["plot"]).is_file()
    history = json.loads((project / ".tmp/finetuning/output/validation_history.json").read_text())
    assert [entry["epoch"] for entry in history] == [0, 3]


async def test_the_run_records_what_the_plugin_does(project):
    """Epochs, rewards, rollouts and tokens are in the run's files, though the plug-in writes none."""
    async with served() as (backend, llm):
        result = await finetune(backend, llm)
    lines = [json.loads(line) for line in (result.run_dir / "training_metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert [line["num_trajectories"] for line in lines] == [12, 12, 12]
    assert lines[2]["avg_reward"] == 1.0 > lines[0]["avg_reward"]
    assert [line["epoch"] for line in json.loads((result.run_dir / "reward_history.json").read_text())] == [0, 1, 2]
    assert result.summary.tokens_trained > 0
    with Journal.open(result.run_dir, read_only=True) as journal:
        assert [job.status.value for job in journal.jobs()] == ["completed"] * 3
        first = next(iter(journal.rollouts(Phase.TRAIN, 0)))
    assert [message["role"] for message in first.messages] == ["user", "assistant", "user", "assistant"]


async def test_a_builder_without_records_is_not_told_that_calls_are_lost(project):
    """What a builder does not report is unknown: no metric counts it as zero, and no diagnosis is made of it."""
    async with served() as (backend, llm):
        result = await finetune(backend, llm)
    line = json.loads((result.run_dir / "training_metrics.jsonl").read_text().splitlines()[0])
    unknown = {"rollout/without_calls", "rollout/failed", "rollout/calls", "drift/untrainable_calls"}
    assert not unknown & line["metrics"].keys()
    assert "calls_lost" not in [cause.cause for cause in result.summary.causes]


async def test_a_builder_that_gives_nothing_fails_the_run(project):
    """The trainer calls its epochs completed; the error says what to look at."""
    async with served() as (backend, llm):
        given_nothing = given(backend, llm)
        override = (*given_nothing.override, ("trajectory_builders.my_builder.min_episode_length", "99"))
        with pytest.raises(NoTrajectories) as raised:
            await run_finetuning(given_nothing.model_copy(update={"override": override}), plotter=blank_plot)
    assert backend.jobs == []
    assert "MyTrainer ended with nothing to train on: MyTrajectoryBuilder gave no trajectory" in str(raised.value)
    assert "`finalize` leaves out" in str(raised.value)
    with Journal.open(Path(".tmp/finetuning/output/latest"), read_only=True) as journal:
        assert journal.info().state is RunState.FAILED


async def test_the_key_from_the_environment_is_used_and_never_written(project):
    """`${TRAINING_API_KEY}` reaches the backend and no file of the run."""
    async with served() as (backend, llm):
        result = await finetune(backend, llm)
    written = [path for path in result.run_dir.rglob("*") if path.is_file()]
    assert any(path.name == "config.resolved.yaml" for path in written)
    assert not [path for path in written if KEY.encode() in path.read_bytes()]

"""Phases of a run with the generic trainer and adapters that remember their jobs."""

import pytest
import yaml

from fakes.finetuning_project import AdapterConfig, BuilderConfig, Coin, FinetuningProject, RememberingAdapter
from fakes.openai_server import OpenAIServer
from nat.data_models.config import Config
from nat.data_models.finetuning import FinetuneConfig
from nat.errors import ConfigError, TrainingFailed
from nat.finetuning.dry_run import dry_run
from nat.finetuning.interfaces.trainer_adapter import Recipe, TakesOver
from nat.finetuning.progress import RunProgress
from nat.finetuning.stage import playing_stage, stages_of
from nat.plugins.offline.builder import DatasetTrajectoryBuilderConfig
from nat.reports.overview import overview
from nat.reports.plan_page import plan_text
from nat.runs.records import RunState


class PhaseAdapter(RememberingAdapter, TakesOver):
    """An adapter that can train a phase, and remembers from which one it took over."""

    previous = None

    async def take_over(self, previous):
        self.previous = previous


class PhasedProject(FinetuningProject):
    """A project whose adapters are built for each name; it has phases with one or two of them."""

    adapter_type = PhaseAdapter

    def __init__(self, folder, server, *phases):
        super().__init__(folder, server)
        self.adapters = []
        self.config["trainer_adapters"]["second"] = {"_type": "test_adapter"}
        del self.finetuning["num_epochs"]
        self.finetuning["phases"] = [
            {"name": name, "num_epochs": epochs, "trainer_adapter": adapter} for name, epochs, adapter in phases
        ]

    async def _build_adapter(self, config, builder):
        self.adapters.append(self.adapter_type(AdapterConfig()))
        yield self.adapters[-1]

    async def phased_run(self, progress=None, **fields):
        with self.registered():
            return await self.run(progress, validation_dataset=str(self.held_out), **fields)


class Epochs(RunProgress):
    """Keeps what a display is told of epochs and phases."""

    def __init__(self):
        self.seen = []

    def run_started(self, run_id, run_dir, num_epochs):
        self.seen.append(num_epochs)

    def phase_started(self, phase):
        self.seen.append(str(phase))

    def epoch_started(self, epoch, num_epochs):
        self.seen.append((epoch, num_epochs))


def stages(*phases):
    """Phases with a builder and an adapter each: rows of a file or rollouts, and two models."""
    named = [
        {"name": f"p{number}", "num_epochs": 1, "trajectory_builder": builder, "trainer_adapter": adapter}
        for number, (builder, adapter) in enumerate(phases)
    ]
    config = Config.model_construct(
        trajectory_builders={
            "file": DatasetTrajectoryBuilderConfig.model_construct(),
            "play": BuilderConfig.model_construct(),
        },
        trainer_adapters={name: AdapterConfig(llm=name) for name in ("student", "other")},
        finetuning=FinetuneConfig.model_validate(
            {"enabled": True, "trainer": "t", "reward_function": {"name": "r"}, "phases": named}
        ),
    )
    return stages_of(config)


def test_the_phase_that_plays_is_the_one_that_a_probe_tries():
    """Rows of a file have no rollouts to try; there may be none."""
    playing = playing_stage(stages(("file", "student"), ("play", "student")))
    assert playing.finetuning.phase == "p1"
    unknown = playing_stage(stages(("file", "student"), ("undefined", "student")))
    assert unknown.finetuning.phase == "p1", "an undefined builder is another error's to name"
    assert playing_stage(stages(("file", "student"))) is None


async def test_an_adapter_takes_over_where_another_one_has_trained(tmp_path):
    """The same adapter goes on; the next one takes over once, and jobs have the number of their epoch."""
    progress = Epochs()
    async with OpenAIServer(Coin()) as server:
        phases = (("one", 1, "adapter"), ("two", 2, "adapter"), ("three", 1, "second"))
        project = PhasedProject(tmp_path, server, *phases)
        await project.phased_run(progress, validation_interval=100)
    first, second = project.adapters
    assert (first.previous, second.previous) == (None, first)
    assert [len(adapter.submitted) for adapter in project.adapters] == [3, 1]
    assert project.built == project.closed == 1
    run, epochs = "Phase one: epoch 1", "Phase two: epochs 2 to 3"
    assert progress.seen == [4, run, (0, 4), epochs, (1, 4), (2, 4), "Phase three: epoch 4", (3, 4)]
    with project.journal() as journal:
        jobs = journal.jobs()
        assert [record.epoch for record in journal.validations()] == [0, 1, 3, 4]
        assert [(phase.name, phase.first_epoch) for phase in journal.phases()] == [("one", 0), ("two", 1), ("three", 3)]
    assert [job.id.rpartition("-")[2] for job in jobs] == ["000001", "000002", "000003", "000004"]


async def test_a_phase_that_stops_early_lets_the_next_one_begin(tmp_path):
    """Epochs are numbered through without a gap, and the next phase counts its own validations."""
    async with OpenAIServer(Coin()) as server:
        project = PhasedProject(tmp_path, server, ("one", 9, "adapter"), ("two", 9, "second"))
        project.finetuning["early_stopping"] = {"patience": 2, "min_delta": 1.0}
        result = await project.phased_run(validation_interval=1)
    assert [(phase.first_epoch, phase.epochs) for phase in result.summary.phases] == [(0, 2), (2, 2)]
    with project.journal() as journal:
        assert [(epoch.epoch, epoch.phase) for epoch in journal.epochs()] == [
            (0, "one"),
            (1, "one"),
            (2, "two"),
            (3, "two"),
        ]


async def test_a_dry_run_plans_every_phase(tmp_path):
    """Each with its parts, epochs and rollouts; what they have in common stands once."""
    async with OpenAIServer(Coin()) as server:
        project = PhasedProject(tmp_path, server, ("one", 1, "adapter"), ("two", 3, "second"))
        project.config["trajectory_builders"]["more"] = {"_type": "test_builder", "num_generations": 4}
        project.finetuning["phases"][1]["trajectory_builder"] = "more"
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
    resolved = yaml.safe_load(plan.config_text)["finetuning"]
    assert [phase["num_epochs"] for phase in resolved["phases"]] == [1, 3]
    assert [(own.phase, own.num_epochs, own.rollouts_per_epoch) for own in plan.stages] == [
        ("one", 1, 8),
        ("two", 3, 16),
    ]
    page = plan_text(plan)
    assert [line.split()[-1] for line in page.splitlines() if line.startswith("Phase")] == ["one", "two"]
    assert page.count("Held-out") == page.count("Reward") == 1
    assert "and after each phase" in page


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"num_epochs": 3}, ["num_epochs: has no effect beside phases"]),
        (
            {"phases": [{"name": "a", "num_epochs": 1}, {"name": "a", "num_epochs": 1}]},
            ["2 have the name 'a'"],
        ),
        (
            {
                "phases": [
                    {"name": "a", "num_epochs": 1, "trainer_adapter": "adaptor"},
                    {"name": "b c", "num_epochs": 0},
                ]
            },
            [
                "finetuning.phases.1.name: ",
                "finetuning.phases.1.num_epochs: ",
            ],
        ),
        (
            {"phases": [{"name": "a", "num_epochs": 1, "trainer_adapter": "adaptr", "trainer": "trainr"}]},
            [
                "finetuning.phases.0.trainer_adapter: 'adaptr' is not under trainer_adapters. Did you mean 'adapter'",
                "finetuning.phases.0.trainer: 'trainr' is not under trainers. Did you mean 'trainer'",
            ],
        ),
        ({"phases": [{"name": "a"}]}, ["finetuning.phases.0.num_epochs"]),
    ],
)
async def test_settings_of_phases_are_checked_together(tmp_path, changes, messages):
    """What is wrong is found when the file is read, with its place."""
    async with OpenAIServer() as server:
        project = PhasedProject(tmp_path, server, ("one", 1, "adapter"))
        project.finetuning.update(changes)
        with project.registered(), pytest.raises(ConfigError) as caught:
            await dry_run(project.given())
    assert all(message in str(caught.value) for message in messages), caught.value


async def test_phases_of_different_models_are_refused(tmp_path):
    """Adapters of two LLMs train two models, and a curriculum orders rollouts, not rows: both are said at once."""
    async with OpenAIServer() as server:
        project = PhasedProject(tmp_path, server, ("one", 1, "adapter"), ("two", 1, "second"))
        llms, adapters = project.config["llms"], project.config["trainer_adapters"]
        llms["teacher"] = llms["student"]
        adapters["adapter"]["llm"], adapters["second"]["llm"] = "student", "teacher"
        rows = tmp_path / "rows.jsonl"
        rows.write_text('{"prompt": "a", "completion": "b"}\n')
        project.config["trajectory_builders"]["file"] = {"_type": "dataset_traj_builder", "file_path": str(rows)}
        project.finetuning["phases"][0]["trajectory_builder"] = "file"
        project.finetuning["curriculum_learning"] = {"enabled": True}
        with project.registered(), pytest.raises(ConfigError) as caught:
            await dry_run(project.given())
    assert "finetuning.phases.0 (one): curriculum_learning orders examples by the rewards" in str(caught.value)
    assert (
        "finetuning.phases.1 (two).trainer_adapter: trains teacher by test_adapter, but the phase 'one' trains"
        in str(caught.value)
    )


class PlainAdapter(RememberingAdapter):
    """An adapter of a plug-in that knows nothing of phases."""


class SampleAdapter(PhaseAdapter):
    """An adapter whose algorithm trains sampled tokens only."""

    recipe = Recipe(only_samples=True)


@pytest.mark.parametrize(
    ("adapter_type", "message"),
    [
        (PlainAdapter, "PlainAdapter cannot train in phases"),
        (SampleAdapter, "the algorithm of adapter trains what the model has sampled, and texts from a file are not"),
    ],
)
async def test_components_that_cannot_train_a_phase_are_named_before_the_first_one(tmp_path, adapter_type, message):
    """No rollout is played, in whichever phase the component is."""
    async with OpenAIServer(Coin()) as server:
        project = PhasedProject(tmp_path, server, ("one", 1, "second"), ("two", 1, "adapter"))
        project.adapter_type = adapter_type
        rows = tmp_path / "rows.jsonl"
        rows.write_text('{"prompt": "a", "completion": "b"}\n')
        project.config["trajectory_builders"]["file"] = {"_type": "dataset_traj_builder", "file_path": str(rows)}
        project.finetuning["phases"][1]["trajectory_builder"] = "file"
        with pytest.raises(ConfigError, match=message) as caught:
            await project.phased_run()
        assert server.requests == []
    assert "finetuning.phases.1 (two)" in str(caught.value)


class FailsLater(PhaseAdapter):
    """An adapter that cannot train once another one has."""

    async def take_over(self, previous):
        await super().take_over(previous)
        self.outcomes = [{"status": "failed", "message": "out of memory"}]


async def test_a_run_that_fails_in_its_second_phase_keeps_the_first(tmp_path):
    """The journal is complete up to there, and says which phase it was."""
    async with OpenAIServer(Coin()) as server:
        project = PhasedProject(tmp_path, server, ("one", 2, "adapter"), ("two", 2, "second"))
        project.adapter_type = FailsLater
        with pytest.raises(TrainingFailed, match="out of memory"):
            await project.phased_run(validation_interval=100)
    assert (project.built, project.closed) == (1, 1)
    with project.journal() as journal:
        assert journal.info().state is RunState.FAILED
        assert [epoch.phase for epoch in journal.epochs()] == ["one", "one"]
        assert [phase.name for phase in journal.phases()] == ["one", "two"]
        first, second = overview(journal).phases
    assert (first.epochs, second.epochs) == (2, 0)
    assert first.sentence is not None
    assert second.verdict is None

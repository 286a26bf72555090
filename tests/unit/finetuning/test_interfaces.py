import inspect

import pytest

import nat.finetuning
from nat.data_models.evaluator import EvalOutputItem
from nat.data_models.finetuning import (
    CurriculumLearningConfig,
    FinetuneConfig,
    RewardFunctionConfig,
    TrainerAdapterConfig,
    TrainerConfig,
    TrajectoryBuilderConfig,
    TrajectoryCollection,
)
from nat.errors import ConfigError
from nat.finetuning import Trainer, TrainerAdapter, TrajectoryBuilder
from nat.finetuning.interfaces import finetuning_runner, trainer_adapter, trajectory_builder


class Builder(TrajectoryBuilder):
    async def start_run(self, run_id, meta=None):
        pass

    async def finalize(self, run_id, meta=None):
        return TrajectoryCollection(trajectories=[], run_id=run_id)

    def log_progress(self, run_id, metrics, output_dir=None):
        pass


class Adapter(TrainerAdapter):
    async def is_healthy(self):
        return True

    async def submit(self, trajectories):
        raise NotImplementedError

    async def status(self, ref):
        raise NotImplementedError

    async def wait_until_complete(self, ref, poll_interval=10.0):
        raise NotImplementedError

    def log_progress(self, ref, metrics, output_dir=None):
        pass


class Runner(Trainer):
    async def run_epoch(self, epoch, run_id):
        return None

    async def run(self, num_epochs):
        return []

    async def get_metrics(self, run_id):
        return {}

    async def cleanup(self):
        pass

    def log_progress(self, epoch, metrics, output_dir=None):
        pass


CONFIG = FinetuneConfig(
    reward_function=RewardFunctionConfig(name="match"),
    curriculum_learning=CurriculumLearningConfig(initial_percentile=0.4),
)


async def initialized():
    runner = Runner(TrainerConfig(), something="else")
    await runner.bind_components(Builder(TrajectoryBuilderConfig()), Adapter(TrainerAdapterConfig()))
    await runner.initialize(CONFIG)
    return runner


def test_the_three_are_where_the_guide_imports_them_from():
    """The guide's module paths and the short ones give the same classes."""
    assert finetuning_runner.Trainer is nat.finetuning.Trainer
    assert trainer_adapter.TrainerAdapter is nat.finetuning.TrainerAdapter
    assert trajectory_builder.TrajectoryBuilder is nat.finetuning.TrajectoryBuilder


@pytest.mark.parametrize(
    ("interface", "method", "arguments"),
    [
        (TrajectoryBuilder, "__init__", ["trajectory_builder_config"]),
        (TrajectoryBuilder, "start_run", ["run_id", "meta"]),
        (TrajectoryBuilder, "finalize", ["run_id", "meta"]),
        (TrajectoryBuilder, "compute_reward", ["output_item", "meta"]),
        (TrajectoryBuilder, "log_progress", ["run_id", "metrics", "output_dir"]),
        (TrainerAdapter, "__init__", ["adapter_config"]),
        (TrainerAdapter, "submit", ["trajectories"]),
        (TrainerAdapter, "status", ["ref"]),
        (TrainerAdapter, "wait_until_complete", ["ref", "poll_interval"]),
        (TrainerAdapter, "log_progress", ["ref", "metrics", "output_dir"]),
        (Trainer, "__init__", ["trainer_config", "kwargs"]),
        (Trainer, "bind_components", ["trajectory_builder", "trainer_adapter"]),
        (Trainer, "initialize", ["run_config"]),
        (Trainer, "run_epoch", ["epoch", "run_id"]),
        (Trainer, "run", ["num_epochs"]),
        (Trainer, "log_progress", ["epoch", "metrics", "output_dir"]),
        (Trainer, "run_validation_evaluation", ["epoch", "run_id"]),
        (Trainer, "apply_curriculum_learning", ["trajectory_collection", "epoch"]),
    ],
)
def test_signatures_are_those_of_the_guide(interface, method, arguments):
    """Names and order of parameters match, so plug-ins can call by keyword."""
    assert list(inspect.signature(getattr(interface, method)).parameters)[1:] == arguments


def test_only_the_guides_abstract_methods_must_be_implemented():
    """A plug-in that implements the guide's abstract methods can be instantiated."""
    assert TrajectoryBuilder.__abstractmethods__ == {"start_run", "finalize", "log_progress"}
    assert TrainerAdapter.__abstractmethods__ == {
        "is_healthy",
        "submit",
        "status",
        "wait_until_complete",
        "log_progress",
    }
    assert Trainer.__abstractmethods__ == {"run_epoch", "run", "get_metrics", "cleanup", "log_progress"}


async def test_initialize_reaches_all_three_and_sets_the_reward():
    """The trainer initializes the bound parts; each config gets the reward function."""
    runner = await initialized()
    assert runner.trajectory_builder.run_config is runner.trainer_adapter.run_config is CONFIG
    assert runner.trainer_config.reward == CONFIG.reward_function
    assert runner.trajectory_builder.trajectory_builder_config.reward == CONFIG.reward_function
    assert runner.trainer_adapter.adapter_config.reward == CONFIG.reward_function


async def test_the_initial_curriculum_state_is_the_guides():
    """The initial state has four keys; `get_curriculum_state` returns them with the configuration as JSON values."""
    runner = await initialized()
    assert runner._curriculum_state == {
        "current_percentile": 0.4,
        "last_expansion_epoch": -1,
        "total_groups": 0,
        "included_groups": set(),
    }
    state = runner.get_curriculum_state()
    assert state["included_groups"] == []
    assert (len(state["config"]), state["config"]["initial_percentile"]) == (7, 0.4)


async def test_applying_a_curriculum_is_left_to_the_trainer():
    """The base class raises instead of doing nothing."""
    with pytest.raises(NotImplementedError, match="Override to implement curriculum learning"):
        (await initialized()).apply_curriculum_learning(TrajectoryCollection(trajectories=[], run_id="r"), 0)


@pytest.mark.parametrize(("score", "reward"), [(0.5, 0.5), (True, 1.0), (None, 0.0)])
async def test_the_default_reward_is_the_score(score, reward):
    """The default reward is the score; the harness never calls it for an item without a score."""
    builder = Builder(TrajectoryBuilderConfig())
    assert await builder.compute_reward(EvalOutputItem(id="a", score=score, reasoning=None)) == reward


async def test_run_eval_without_a_configuration_file_is_an_error():
    """A builder outside of a run has no workflow, so `run_eval` raises."""
    builder = Builder(TrajectoryBuilderConfig())
    await builder.initialize(FinetuneConfig())
    with pytest.raises(ConfigError, match="config_file: not set"):
        await builder.run_eval()


async def test_validation_without_a_dataset_is_an_error():
    """A record of zeros would look like a score."""
    with pytest.raises(ConfigError, match="validation_dataset: not set"):
        await (await initialized()).run_validation_evaluation(0, "r")

import pytest

import nat.finetuning
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


async def test_run_eval_without_a_configuration_file_is_an_error():
    """A builder outside of a run has no workflow, so `run_eval` raises."""
    builder = Builder(TrajectoryBuilderConfig())
    await builder.initialize(FinetuneConfig())
    with pytest.raises(ConfigError, match="config_file: not set"):
        await builder.run_eval()

"""The three interfaces have the signatures of the guide."""

import inspect

import pytest

from nat.finetuning import Trainer, TrainerAdapter, TrajectoryBuilder

NO_DEFAULT = inspect.Parameter.empty

GUIDE = {
    TrajectoryBuilder: {
        "__init__": {"trajectory_builder_config": NO_DEFAULT},
        "initialize": {"run_config": NO_DEFAULT},
        "run_eval": {},
        "start_run": {"run_id": NO_DEFAULT, "meta": None},
        "finalize": {"run_id": NO_DEFAULT, "meta": None},
        "compute_reward": {"output_item": NO_DEFAULT, "meta": None},
        "log_progress": {"run_id": NO_DEFAULT, "metrics": NO_DEFAULT, "output_dir": None},
    },
    TrainerAdapter: {
        "__init__": {"adapter_config": NO_DEFAULT},
        "initialize": {"run_config": NO_DEFAULT},
        "is_healthy": {},
        "submit": {"trajectories": NO_DEFAULT},
        "status": {"ref": NO_DEFAULT},
        "wait_until_complete": {"ref": NO_DEFAULT, "poll_interval": 10.0},
        "log_progress": {"ref": NO_DEFAULT, "metrics": NO_DEFAULT, "output_dir": None},
    },
    Trainer: {
        "__init__": {"trainer_config": NO_DEFAULT, "kwargs": NO_DEFAULT},
        "bind_components": {"trajectory_builder": NO_DEFAULT, "trainer_adapter": NO_DEFAULT},
        "initialize": {"run_config": NO_DEFAULT},
        "run_epoch": {"epoch": NO_DEFAULT, "run_id": NO_DEFAULT},
        "run": {"num_epochs": NO_DEFAULT},
        "get_metrics": {"run_id": NO_DEFAULT},
        "cleanup": {},
        "log_progress": {"epoch": NO_DEFAULT, "metrics": NO_DEFAULT, "output_dir": None},
        "run_validation_evaluation": {"epoch": NO_DEFAULT, "run_id": NO_DEFAULT},
        "apply_curriculum_learning": {"trajectory_collection": NO_DEFAULT, "epoch": NO_DEFAULT},
        "get_curriculum_state": {},
    },
}

ABSTRACT = {
    TrajectoryBuilder: {"start_run", "finalize", "log_progress"},
    TrainerAdapter: {"is_healthy", "submit", "status", "wait_until_complete", "log_progress"},
    Trainer: {"run_epoch", "run", "get_metrics", "cleanup", "log_progress"},
}

SYNCHRONOUS = {"__init__", "log_progress", "apply_curriculum_learning", "get_curriculum_state"}


@pytest.mark.parametrize("interface", GUIDE, ids=lambda interface: interface.__name__)
def test_the_interface_is_the_guides(interface):
    """Parameters, their order and defaults match the guide, and what it awaits is a coroutine.

    A subclass must implement only what the guide marks as abstract.
    """
    for name, parameters in GUIDE[interface].items():
        method = getattr(interface, name)
        seen = {p.name: p.default for p in inspect.signature(method).parameters.values() if p.name != "self"}
        assert list(seen.items()) == list(parameters.items()), name
        assert inspect.iscoroutinefunction(method) is (name not in SYNCHRONOUS), name
    assert interface.__abstractmethods__ == ABSTRACT[interface]


def test_attributes_of_the_guide():
    """A subclass finds its config and its empty attributes under the guide's names."""
    adapter = Adapter("the config")
    assert (adapter.adapter_config, adapter.run_config) == ("the config", None)
    builder = Builder("the config")
    assert (builder.trajectory_builder_config, builder.run_config) == ("the config", None)
    trainer = Loop("the config", extra="is let pass")
    assert trainer.trainer_config == "the config"
    assert trainer.run_config is trainer.curriculum_config is trainer._curriculum_state is None
    assert trainer.trajectory_builder is trainer.trainer_adapter is None


class Adapter(TrainerAdapter):
    async def is_healthy(self): ...
    async def submit(self, trajectories): ...
    async def status(self, ref): ...
    async def wait_until_complete(self, ref, poll_interval=10.0): ...
    def log_progress(self, ref, metrics, output_dir=None): ...


class Builder(TrajectoryBuilder):
    async def start_run(self, run_id, meta=None): ...
    async def finalize(self, run_id, meta=None): ...
    def log_progress(self, run_id, metrics, output_dir=None): ...


class Loop(Trainer):
    async def run_epoch(self, epoch, run_id): ...
    async def run(self, num_epochs): ...
    async def get_metrics(self, run_id): ...
    async def cleanup(self): ...
    def log_progress(self, epoch, metrics, output_dir=None): ...

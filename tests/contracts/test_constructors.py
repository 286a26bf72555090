"""Every class of the guide is made by the guide's own call, and says what is missing if its methods come too early."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nat.data_models.finetuning import FinetuneConfig, TrainingJobRef, TrajectoryCollection
from nat.finetuning import Trainer, TrainerAdapter, TrajectoryBuilder
from nat.plugins.customizer.dpo.config import (
    DPOTrajectoryBuilderConfig,
    NeMoCustomizerTrainerAdapterConfig,
    NeMoCustomizerTrainerConfig,
)
from nat.plugins.customizer.dpo.trainer import NeMoCustomizerTrainer
from nat.plugins.customizer.dpo.trainer_adapter import NeMoCustomizerTrainerAdapter
from nat.plugins.customizer.dpo.trajectory_builder import DPOTrajectoryBuilder
from nat.plugins.openpipe.config import ARTTrainerAdapterConfig, ARTTrainerConfig, ARTTrajectoryBuilderConfig
from nat.plugins.openpipe.trainer import ARTTrainer
from nat.plugins.openpipe.trainer_adapter import ARTTrainerAdapter
from nat.plugins.openpipe.trajectory_builder import ARTTrajectoryBuilder

NOTHING = TrajectoryCollection(trajectories=[], run_id="r")
REF = TrainingJobRef(run_id="r", backend="b")
TOO_EARLY = "is not initialized: await|No evaluation runs? found|No training job found"


def art_adapter(port: int = 1) -> ARTTrainerAdapter:
    return ARTTrainerAdapter(adapter_config=ARTTrainerAdapterConfig(backend={"ip": "127.0.0.1", "port": port}))


def customizer_adapter(url: str = "http://127.0.0.1:1") -> NeMoCustomizerTrainerAdapter:
    hosts = {"entity_host": url, "datastore_host": url}
    config = NeMoCustomizerTrainerAdapterConfig(**hosts, namespace="team", customization_config="meta/llama@v1")
    return NeMoCustomizerTrainerAdapter(adapter_config=config)


def trainers() -> list[Trainer]:
    return [
        ARTTrainer(trainer_config=ARTTrainerConfig()),
        NeMoCustomizerTrainer(trainer_config=NeMoCustomizerTrainerConfig()),
    ]


def builders() -> list[TrajectoryBuilder]:
    return [
        ARTTrajectoryBuilder(trajectory_builder_config=ARTTrajectoryBuilderConfig()),
        DPOTrajectoryBuilder(trajectory_builder_config=DPOTrajectoryBuilderConfig(ttc_step_name="choose")),
    ]


def adapters() -> list[TrainerAdapter]:
    return [art_adapter(), customizer_adapter()]


async def says_what_is_missing(call: Callable[[], Any]) -> None:
    async def result() -> Any:
        found = call()
        return await found if isinstance(found, Awaitable) else found

    with pytest.raises((RuntimeError, ValueError), match=TOO_EARLY):
        await result()


@pytest.mark.parametrize("trainer", trainers(), ids=lambda each: type(each).__name__)
async def test_a_trainer_before_its_time(trainer):
    """Before `bind_components` and `initialize` each method says which call is missing; `cleanup` does nothing."""
    await says_what_is_missing(lambda: trainer.initialize(FinetuneConfig()))
    await says_what_is_missing(lambda: trainer.run(1))
    await says_what_is_missing(lambda: trainer.run_epoch(0, "r"))
    await says_what_is_missing(lambda: trainer.run_validation_evaluation(0, "r"))
    await says_what_is_missing(lambda: trainer.apply_curriculum_learning(NOTHING, 0))
    await says_what_is_missing(trainer.get_curriculum_state)
    assert isinstance(await trainer.get_metrics("r"), dict)
    await trainer.cleanup()
    await trainer.cleanup()


@pytest.mark.parametrize("builder", builders(), ids=lambda each: type(each).__name__)
async def test_a_builder_before_its_time(builder):
    """Without `initialize` there is nothing to play; without `start_run` nothing to wait for."""
    await says_what_is_missing(builder.run_eval)
    await says_what_is_missing(lambda: builder.finalize("r"))
    await builder.start_run("r")
    await says_what_is_missing(lambda: builder.finalize("r"))
    await builder.abandon("r")


@pytest.mark.parametrize("adapter", adapters(), ids=lambda each: type(each).__name__)
async def test_an_adapter_before_its_time(adapter):
    """Before `initialize`, no job can be submitted or known; `close` may be called at any time."""
    await says_what_is_missing(lambda: adapter.submit(NOTHING))
    await says_what_is_missing(lambda: adapter.status(REF))
    await says_what_is_missing(lambda: adapter.wait_until_complete(REF))
    await adapter.close()
    await adapter.close()

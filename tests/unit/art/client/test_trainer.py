import asyncio
import gc
import logging
import re
import sys
from contextvars import copy_context

from fakes.finetuning_project import AdapterConfig, BuilderConfig, RememberingAdapter
from nat.art.client.config import ARTTrainerConfig
from nat.art.client.trainer import ARTTrainer
from nat.data_models.finetuning import FinetuneConfig
from nat.finetuning.trajectory_builder import EvalTrajectoryBuilder


async def test_a_run_has_an_id_as_arts_users_know_it(tmp_path, caplog):
    """The log lines have an id in ART's format; the run's folder keeps its sortable name."""
    caplog.set_level(logging.INFO)
    trainer = ARTTrainer(ARTTrainerConfig())
    await trainer.bind_components(EvalTrajectoryBuilder(BuilderConfig()), RememberingAdapter(AdapterConfig()))
    await trainer.initialize(FinetuneConfig(output_dir=tmp_path))
    assert re.fullmatch("art_run_[0-9a-f]{8}", trainer.run_id)
    assert trainer.context.run_id != trainer.run_id
    assert "Initializing OpenPipe ART Runner" in caplog.text
    assert f"OpenPipe ART Runner initialized with run ID: {trainer.run_id}" in caplog.text
    await trainer.cleanup()


async def test_a_trainer_that_is_initialized_outside_a_run_is_quiet(tmp_path, monkeypatch, caplog):
    """A unit test with mocks, as the toolkit's, may leave `cleanup` out: nothing is printed when the trainer goes."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    async def initialized():
        trainer = ARTTrainer(ARTTrainerConfig())
        await trainer.bind_components(EvalTrajectoryBuilder(BuilderConfig()), RememberingAdapter(AdapterConfig()))
        await trainer.initialize(FinetuneConfig(output_dir=tmp_path))

    await asyncio.create_task(initialized(), context=copy_context())
    gc.collect()
    assert unraisable == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

import asyncio
import gc
import logging
import re
import sys
from contextvars import copy_context
from unittest.mock import AsyncMock, MagicMock

from fakes.finetuning_project import AdapterConfig, BuilderConfig, RememberingAdapter
from nat.art.client.config import ARTTrainerConfig
from nat.art.client.trainer import ARTTrainer
from nat.data_models.finetuning import EpisodeItem, FinetuneConfig, TrainingJobRef, Trajectory, TrajectoryCollection
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


async def test_a_trainer_runs_in_a_unit_test_with_mocks_and_is_quiet(tmp_path, monkeypatch, caplog):
    """As the toolkit's tests: mocks around it, no run outside, no `cleanup`; nothing is printed when it goes."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    group = [Trajectory(episode=[EpisodeItem(role="user", content="q")], reward=r) for r in (0.0, 1.0)]
    collection = TrajectoryCollection(trajectories=[group], run_id="r")
    builder = MagicMock(initialize=AsyncMock(), start_run=AsyncMock(), finalize=AsyncMock(return_value=collection))
    ref = TrainingJobRef(run_id="r", backend="openpipe-art")
    adapter = MagicMock(initialize=AsyncMock(), submit=AsyncMock(return_value=ref))

    async def played():
        trainer = ARTTrainer(ARTTrainerConfig())
        await trainer.bind_components(builder, adapter)
        await trainer.initialize(FinetuneConfig(output_dir=tmp_path))
        assert await trainer.run_epoch(0, "r") == ref

    await asyncio.create_task(played(), context=copy_context())
    gc.collect()
    assert unraisable == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

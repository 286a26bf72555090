import logging
import re

from fakes.finetuning_project import AdapterConfig, BuilderConfig, RememberingAdapter
from nat.art.client.config import ARTTrainerConfig, ARTTrajectoryBuilderConfig
from nat.art.client.trainer import ARTTrainer, ARTTrajectoryBuilder
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


def test_two_runs_have_two_ids():
    """Two runs have different ids, so their jobs cannot be confused."""
    assert ARTTrainer(ARTTrainerConfig()).run_id != ARTTrainer(ARTTrainerConfig()).run_id


def test_the_builder_is_the_generic_one():
    """The ART trainer works with the generic trajectory builder."""
    builder = ARTTrajectoryBuilder(ARTTrajectoryBuilderConfig(num_generations=4))
    assert isinstance(builder, EvalTrajectoryBuilder)
    assert builder.num_generations == 4
    assert builder.evaluation_runs == {}

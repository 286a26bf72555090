"""The trainer: passes, one job, its files, and what a later run needs to take it up."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from fakes.customizer_server import FakeCustomizer
from fakes.preference_pairs import ScriptedPairs, game, pair
from nat.data_models.finetuning import CurriculumLearningConfig, FinetuneConfig, TrajectoryBuilderConfig
from nat.errors import JournalError, NoLearningSignal, NoTrajectories
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig, NeMoCustomizerTrainerConfig
from nat.plugins.customizer.dpo.service import connected
from nat.plugins.customizer.dpo.trainer import NeMoCustomizerTrainer
from nat.plugins.customizer.dpo.trainer_adapter import NeMoCustomizerTrainerAdapter
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.runs.rollouts import RolloutRecord
from nat.wire.training import JobStatus


@asynccontextmanager
async def trainer_of(server, tmp_path, passes=(), *, finetuning=None, **settings):
    """An initialized trainer whose builder gives these passes."""
    config = NeMoCustomizerTrainerAdapterConfig(
        entity_host=server.base_url,
        datastore_host=server.base_url,
        namespace="team",
        customization_config="meta/llama@v1+A100",
        poll_interval_seconds=0.01,
    )
    async with AsyncExitStack() as stack:
        adapter = NeMoCustomizerTrainerAdapter(config, service=await stack.enter_async_context(connected(config)))
        trainer = NeMoCustomizerTrainer(trainer_config=NeMoCustomizerTrainerConfig(**settings))
        await trainer.bind_components(ScriptedPairs(TrajectoryBuilderConfig(), passes), adapter)
        await trainer.initialize(FinetuneConfig(output_dir=tmp_path, **(finetuning or {})))
        try:
            yield trainer
        finally:
            await trainer.cleanup()


async def run(server, tmp_path, passes, **settings):
    """The statuses of a run, and its folder."""
    async with trainer_of(server, tmp_path, passes, **settings) as trainer:
        return await trainer.run(1), trainer.context.journal.run_dir


def sent(server) -> int:
    """Rows of the last dataset."""
    repository = list(server.repositories)[-1]
    files = ("training/training_file.jsonl", "validation/validation_file.jsonl")
    return sum(len(server.rows(repository, file)) for file in files)


def read(path):
    return json.loads(path.read_text())


async def test_the_passes_become_one_job(tmp_path):
    """`num_runs` passes are collected, and one job trains on the pairs of all."""
    passes = [game(examples=4), [pair("e9", prompt=str(n)) for n in range(3)]]
    async with FakeCustomizer() as server:
        async with trainer_of(server, tmp_path, passes, num_runs=2) as trainer:
            (status,) = await trainer.run(1)
            metrics = await trainer.get_metrics(trainer.run_id)
            assert trainer.trajectory_builder.started == [f"{trainer.run_id}_run{n}" for n in range(2)]
        assert len(server.jobs) == 1
        assert sent(server) == 19
    assert status.status == "completed"
    assert (metrics["num_collection_runs"], metrics["total_trajectory_groups"]) == (2, 5)
    assert metrics["training_job"] == {
        "job_id": "cust-1",
        "status": "completed",
        "progress": 100.0,
        "message": "Status: completed",
    }


async def test_the_plug_ins_files(tmp_path):
    """The output folder has the plug-in's file names with its keys."""
    async with FakeCustomizer() as server:
        await run(server, tmp_path, [game(examples=4), game(examples=5)], num_runs=2)
    lines = [json.loads(line) for line in (tmp_path / "data_collection_progress.jsonl").read_text().splitlines()]
    assert [line["num_dpo_pairs"] for line in lines] == [16, 20]
    assert set(lines[0]) == {
        *("run_number", "timestamp", "run_id", "num_trajectories", "num_dpo_pairs"),
        *("avg_reward", "min_reward", "max_reward"),
    }
    assert read(tmp_path / "collection_history.json") == lines
    final = read(tmp_path / "final_metrics.json")
    assert final["status"] == "completed"
    assert final["collection_summary"] == {"total_trajectories": 36, "total_dpo_pairs": 36, "avg_reward": 1.0}
    assert (final["num_collection_runs"], final["total_trajectory_groups"]) == (2, 9)
    assert final["job_metadata"]["job_id"] == "cust-1"
    assert final["left_out"] == {"the same pair was collected before": 16}
    assert set(final) >= {"run_id", "timestamp", "message", "progress"}


async def test_the_journal_has_the_job_and_the_rollouts(tmp_path):
    """The job is there under the service's id, with its model; each pass keeps its own rollouts."""
    passes = [game(examples=4)] * 2
    async with FakeCustomizer() as server, trainer_of(server, tmp_path, passes, num_runs=2) as trainer:
        trainer.trajectory_builder.records = [RolloutRecord(example_id="e0", generation=0)]
        await trainer.run(1)
        folder = trainer.context.journal.run_dir
    with reading(folder) as journal:
        (job,) = journal.jobs()
        rollouts = [(each.example_id, each.generation) for each in journal.rollouts(Phase.TRAIN, 0)]
    assert (job.id, job.backend, job.status) == ("cust-1", "nemo-customizer", JobStatus.COMPLETED)
    assert job.policy_version == f"team/nat-dpo-{job.training['run_id']}"
    assert (job.num_groups, job.num_trajectories) == (4, 16)
    assert rollouts == [("e0", 0), ("e0", 1)]


async def test_pairs_are_deduplicated_unless_told_not_to(tmp_path):
    """`deduplicate_pairs` has an effect in both positions."""
    passes = [game(examples=4), game(examples=4)]
    async with FakeCustomizer() as server:
        await run(server, tmp_path / "a", list(passes), num_runs=2)
        assert sent(server) == 16
        await run(server, tmp_path / "b", list(passes), num_runs=2, deduplicate_pairs=False)
        assert sent(server) == 32


async def test_max_pairs_draws_by_the_seed(tmp_path):
    """The same seed trains on the same pairs."""
    async with FakeCustomizer() as server:
        for seed, name in ((1, "a"), (1, "b"), (2, "c")):
            await run(server, tmp_path / name, [game()], max_pairs=12, finetuning={"seed": seed})
            assert sent(server) == 12
        one, two, other = (files["training/training_file.jsonl"] for files in server.repositories.values())
    assert one == two
    assert one != other


async def test_a_failed_pass_ends_the_run_or_not(tmp_path):
    """`continue_on_collection_error` decides; a run without any pair fails."""
    failure = RuntimeError("no model")
    async with FakeCustomizer() as server:
        with pytest.raises(RuntimeError, match="no model"):
            await run(server, tmp_path / "a", [failure, game()], num_runs=2)
        settings = {"num_runs": 2, "continue_on_collection_error": True}
        (status,), _ = await run(server, tmp_path / "b", [failure, game()], **settings)
        assert status.status == "completed"
        with pytest.raises(NoTrajectories):
            await run(server, tmp_path / "c", [failure, failure], **settings)
        with pytest.raises(NoLearningSignal, match="1 x two candidates of a turn have equal scores"):
            await run(server, tmp_path / "d", [[pair("a", scores=(1, 1))]])
        assert len(server.jobs) == 1


async def test_not_waiting_ends_with_the_job_running(tmp_path):
    """`wait_for_completion: false` submits, says that there can be no verdict, and leaves the job alone."""
    async with FakeCustomizer() as server:
        async with trainer_of(server, tmp_path, [game()], wait_for_completion=False) as trainer:
            assert trainer.no_verdict() == "wait_for_completion is false, so the run ends before the model is trained"
            (status,) = await trainer.run(1)
        assert not any(path.endswith(("/status", "/cancel")) for path in server.paths)
    assert (status.status, status.message) == ("running", "Training job submitted (not waiting for completion)")
    assert read(tmp_path / "final_metrics.json")["job_metadata"]["job_id"] == "cust-1"


async def test_a_later_run_takes_up_the_job(tmp_path):
    """The job is journaled before the first check, so `resume` waits for it; nothing is collected or paid again."""
    async with FakeCustomizer(statuses=[(404, {"detail": "the network is gone"}), {"status": "completed"}]) as server:
        with pytest.raises(Exception, match="the network is gone"):
            await run(server, tmp_path, [game()])
        first = next(path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink())
        with reading(first) as journal:
            assert [(job.id, job.status) for job in journal.jobs()] == [("cust-1", JobStatus.PENDING)]
        async with trainer_of(server, tmp_path, resume=first.name) as trainer:
            (status,) = await trainer.run(1)
            second = trainer.context.journal.run_dir
            assert trainer.trajectory_builder.started == []
        assert len(server.jobs) == 1
    assert status.status == "completed"
    assert status.metadata["output_model"] == f"team/nat-dpo-{status.run_id}"
    with reading(second) as journal:
        (job,) = journal.jobs()
    assert (job.id, job.status, job.num_trajectories) == ("cust-1", JobStatus.COMPLETED, 40)


async def test_a_run_without_a_job_cannot_be_taken_up(tmp_path):
    """The error says that the run ended before it submitted a job."""
    async with FakeCustomizer() as server:
        with pytest.raises(RuntimeError):
            await run(server, tmp_path, [RuntimeError("x")])
        first = next(path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink())
        async with trainer_of(server, tmp_path, resume=first.name) as trainer:
            with pytest.raises(JournalError, match="has no job of NeMo Customizer to resume"):
                await trainer.run(1)


async def test_ctrl_c_cancels_the_paid_job(tmp_path):
    """The journal keeps the job's id also then."""
    async with FakeCustomizer(statuses=[{"status": "running"}]) as server:
        task = asyncio.create_task(run(server, tmp_path, [game()]))
        await server.polled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.canceled == ["cust-1"]
    assert read(tmp_path / "latest" / "final_metrics.json")["job_metadata"]["job_id"] == "cust-1"


async def test_settings_of_other_trainers_are_named(tmp_path, caplog):
    """What has no effect here is said, since the toolkit's YAMLs have it."""
    finetuning = {"num_epochs": 5, "curriculum_learning": CurriculumLearningConfig(enabled=True)}
    async with FakeCustomizer() as server, trainer_of(server, tmp_path, finetuning=finetuning):
        pass
    assert "finetuning.num_epochs has no effect with nemo_customizer_trainer" in caplog.text
    assert "finetuning.curriculum_learning has no effect" in caplog.text

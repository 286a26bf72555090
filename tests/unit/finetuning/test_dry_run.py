import pytest

from fakes.finetuning_project import FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.errors import BackendUnreachable
from nat.finetuning.dry_run import dry_run


async def test_a_dry_run_resolves_counts_and_builds_but_plays_nothing(tmp_path):
    """The plan has what the run would do; no request is made and no folder is left."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out), validation_interval=3))
        assert server.requests == []
    assert (plan.num_examples, plan.num_generations, plan.rollouts_per_epoch) == (4, 2, 8)
    assert (plan.num_held_out, plan.validation_interval) == (8, 3)
    assert (plan.trainer, plan.trajectory_builder, plan.trainer_adapter) == (
        "test_trainer",
        "test_builder",
        "test_adapter",
    )
    assert plan.warnings == []
    assert (project.built, project.closed) == (1, 1)
    assert not project.output_dir.exists()


async def test_a_dry_run_warns_of_what_will_disappoint(tmp_path):
    """One generation has nothing to compare; training data cannot show that anything was learned."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["trajectory_builders"]["builder"]["num_generations"] = 1
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.dataset)))
    assert len(plan.warnings) == 2
    assert "num_generations is 1" in plan.warnings[0]
    assert "memorising" in plan.warnings[1]


async def test_a_dry_run_warns_of_a_target_that_is_no_function(tmp_path):
    """Else the mistake is told of after the first epoch only; code may name functions itself, so it is no error."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["finetuning"]["target_functions"] = ["<workflov>"]
        with project.registered():
            plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
    [warning] = plan.warnings
    assert "'<workflov>' is not under `functions`. Did you mean '<workflow>'?" in warning


async def test_a_dry_run_finds_a_backend_that_is_down(tmp_path):
    """The adapter's health is asked, as a run would."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.adapter.healthy = False
        with project.registered(), pytest.raises(BackendUnreachable):
            await dry_run(project.given())


async def test_no_secret_is_in_the_plan(tmp_path):
    """The resolved configuration is shown with its keys starred out."""
    async with OpenAIServer() as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"]["api_key"] = "sk-very-secret"
        with project.registered():
            plan = await dry_run(project.given())
    assert "sk-very-secret" not in plan.model_dump_json()

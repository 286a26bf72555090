"""`nat finetune` with NeMo Customizer: pairs, job, deployment and a verdict, against a server with its routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.customizer_server import FakeCustomizer
from fakes.finetuning_project import FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from fakes.preference_pairs import ScriptedPairs, game
from nat.cli.commands.finetune import summary_text
from nat.data_models.finetuning import TrajectoryBuilderConfig
from nat.finetuning.runtime import RunResult
from nat.registry.decorators import register_trajectory_builder
from nat.runs.journal import reading
from nat.runs.records import Verdict

MODEL = "team/better"


class ScriptedPairsConfig(TrajectoryBuilderConfig, name="scripted_pairs"):
    pass


def answers(request) -> Say:
    """The trained model knows the answer."""
    return Say("right" if request.body["model"] == MODEL else "wrong")


@dataclass
class Setting:
    """A project, and the service that trains."""

    project: FinetuningProject
    service: FakeCustomizer

    async def run(self, *, trainer: dict[str, Any] | None = None, held_out: bool = True, **adapter: Any) -> RunResult:
        config = self.project.config
        config["trainer_adapters"]["adapter"] |= adapter
        config["trainers"]["trainer"] |= trainer or {}
        given = {"validation_dataset": str(self.project.held_out)} if held_out else {}
        return await self.project.run(**given)


@asynccontextmanager
async def setting(tmp_path: Path, **options: Any) -> AsyncIterator[Setting]:
    async with OpenAIServer(answers) as models, FakeCustomizer(**options) as service:
        models.models = ["tiny", MODEL]
        project = FinetuningProject(tmp_path, models)
        with project.registered():

            @register_trajectory_builder(config_type=ScriptedPairsConfig)
            async def scripted_pairs(config, builder):
                yield ScriptedPairs(config, [game()])

            project.config["trajectory_builders"]["builder"] = {"_type": "scripted_pairs"}
            project.config["trainers"]["trainer"] = {"_type": "nemo_customizer_trainer"}
            project.config["trainer_adapters"]["adapter"] = {
                "_type": "nemo_customizer_trainer_adapter",
                "entity_host": service.base_url,
                "datastore_host": service.base_url,
                "namespace": "team",
                "customization_config": "meta/llama@v1+A100",
                "output_model": MODEL,
                "poll_interval_seconds": 0.01,
            }
            yield Setting(project, service)


async def test_a_deployed_model_gets_a_verdict(tmp_path):
    """The held-out examples are played with the base model and with the deployed one, whose name the summary has."""
    async with setting(tmp_path) as project:
        result = await project.run(deploy_on_completion=True)
    assert result.comparison is not None
    assert (result.comparison.before, result.comparison.after) == (0.0, 1.0)
    assert result.summary.verdict is Verdict.IMPROVED
    assert result.served_model.name == MODEL
    text = summary_text(result, project.project.given())
    assert f"-o llms.student.model_name {MODEL}" in text
    assert result.summary.causes == []
    assert (result.run_dir.parent / "final_metrics.json").is_file()


async def test_without_a_deployment_the_run_says_why_there_is_no_verdict(tmp_path, caplog):
    """Nothing is played with the base model in place of the trained one."""
    async with setting(tmp_path) as project:
        result = await project.run()
    reason = "the trained model is not deployed (deploy_on_completion is false), so the workflow cannot call it"
    assert result.comparison is None
    assert f"No verdict: {reason}." in summary_text(result, project.project.given())
    assert f"No verdict: {reason}." in caplog.text
    with reading(result.run_dir) as journal:
        assert journal.validations() == []


async def test_a_run_that_does_not_wait_completes(tmp_path):
    """The job goes on; the run ends well, and claims no trained epoch."""
    async with setting(tmp_path, statuses=[{"status": "running"}]) as project:
        result = await project.run(trainer={"wait_for_completion": False})
        assert project.service.canceled == []
    assert result.summary.epochs == 0
    assert "No verdict: wait_for_completion is false" in summary_text(result, project.project.given())


async def test_a_failed_job_fails_the_run(tmp_path):
    """The service's reason is in the error."""
    failed = {"status": "failed", "status_logs": [{"message": "out of memory"}]}
    async with setting(tmp_path, statuses=[failed]) as project:
        with pytest.raises(Exception, match="nemo-customizer failed: Status: failed, out of memory"):
            await project.run(held_out=False)

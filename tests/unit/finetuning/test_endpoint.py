"""Finetuning with the workflow behind a URL: the same training as in this process, or a reason why not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from fakes.finetuning_project import FinetuningProject
from fakes.openai_replies import prompt_ids
from fakes.openai_server import OpenAIServer, Say
from fakes.running_server import running
from fakes.served_workflow import serving_file, url_of
from nat.builder.context import Context
from nat.builder.llm import LLMProviderInfo
from nat.data_models.finetuning import TrajectoryCollection
from nat.data_models.llm import LLMBaseConfig
from nat.errors import BackendUnreachable, ConfigError, NoTrajectories, WorkflowError
from nat.finetuning.dry_run import dry_run
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_provider
from nat.runs.records import Phase


def dice(request) -> Say:
    """What is said depends on the seed and on the conversation, as with a real sampler."""
    seed = request.body.get("seed", 0)
    return Say("right" if (seed + len(prompt_ids(request.messages))) % 2 else f"wrong {seed}")


async def agent(question: str, ask: Any) -> str:
    """Two calls in one function, the first with a reward of its own, and one in another that is not trained."""
    with Context.get().push_active_function("critic", input_data=question):
        await ask(f"criticise {question}, {Context.get().rollout_seed}")
    with Context.get().push_active_function("solver", input_data=question):
        Context.get().reward(len(await ask(question)) / 100)
        return await ask(question)


@asynccontextmanager
async def served(project: FinetuningProject) -> AsyncIterator[str]:
    """The project's own YAML behind a URL."""
    async with serving_file(project.given().config_file) as client:
        yield url_of(client)


def told(collections: list[TrajectoryCollection]) -> list[Any]:
    """Everything that was handed to the trainer, but the run's own id."""
    return [
        [
            [
                {**one.model_dump(), "metadata": {k: v for k, v in (one.metadata or {}).items() if k != "run_id"}}
                for one in group
            ]
            for group in collection.trajectories
        ]
        for collection in collections
    ]


@pytest.mark.parametrize("credit", ["outcome", "return_to_go"])
async def test_the_same_is_trained_on(tmp_path, credit):
    """Trajectory by trajectory: messages, log probabilities, ids, rewards, groups; and so is what the journal keeps."""
    async with OpenAIServer(dice, fingerprint="m@0") as server:
        here = FinetuningProject(_folder(tmp_path / "here"), server, agent)
        here.finetuning.update(target_functions=["solver"], reward_function={"name": "match", "credit": credit})
        with here.registered():
            await here.run(validation_dataset=str(here.held_out))
        asked = sorted(request.raw for request in server.requests)
        server.requests.clear()
        there = FinetuningProject(_folder(tmp_path / "there"), server, agent)
        there.finetuning.update(here.finetuning, output_dir=str(there.output_dir))
        with there.registered():
            async with served(there) as url:
                await there.run(validation_dataset=str(there.held_out), endpoint=url)
        assert sorted(request.raw for request in server.requests) == asked
    assert len(there.adapter.submitted) == 2
    assert told(there.adapter.submitted) == told(here.adapter.submitted)
    trajectory = there.adapter.submitted[0].trajectories[0][0]
    assert (trajectory.shaped_rewards is not None) == (credit == "return_to_go")
    assert all("criticise" not in item.content for item in trajectory.episode)
    assert all(item.metadata["token_ids"] for item in trajectory.episode if item.role == "assistant")
    with here.journal() as first, there.journal() as second:
        for phase, epoch in ((Phase.VALIDATION, 0), (Phase.TRAIN, 0), (Phase.TRAIN, 1), (Phase.VALIDATION, 2)):
            mine, other = (
                [r.model_dump(exclude={"seconds"}) for r in j.rollouts(phase, epoch)] for j in (first, second)
            )
            assert mine == other != []
    assert there.built == 1


async def test_nothing_is_built_here(tmp_path):
    """The workflow may need what only the other machine has."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        with project.registered():
            async with served(project) as url:
                project.config["workflow"]["llm"] = "student"
                project.config["functions"] = {"tool": {"_type": "test_agent"}}
                await project.run(endpoint=url)
    assert project.built == 1


async def test_a_dead_endpoint_is_told_before_anything_is_played(tmp_path):
    """By a run and by a dry run."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        with project.registered():
            for play in (project.run_given, dry_run):
                with pytest.raises(BackendUnreachable, match=r"no served workflow answers at http://127.0.0.1:9"):
                    await play(project.given(endpoint="http://127.0.0.1:9"))
        assert server.requests == []


async def test_another_server_is_told_before_anything_is_played(tmp_path):
    """Its steps have no log probabilities, so an epoch of rollouts would be for nothing."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        async with running(Starlette()) as other:  # knows no /health, as old servers
            with project.registered(), pytest.raises(WorkflowError, match="cannot be used for training"):
                await project.run(endpoint=url_of(other))
        assert server.requests == []


async def test_a_dead_server_is_reported_as_the_cause(tmp_path):
    """The failed rollouts are the symptom; what ends the run is told as what it is."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        with project.registered():
            async with served(project) as url:
                healthy = await _health(url)
            assert healthy == {"status": "healthy"}
            with pytest.raises(BackendUnreachable, match=f"no served workflow answers at {url}"):
                await project.run(endpoint=url)


async def test_failures_there_are_failures_here(tmp_path):
    """Counted with their cause, never a reward of 0; too many of them end the run."""

    async def fails(question, ask):
        raise KeyError("board")

    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, fails)
        with project.registered():
            async with served(project) as url:
                with pytest.raises(NoTrajectories, match="RemoteFailure: KeyError: 'board'"):
                    await project.run(endpoint=url)
    assert project.adapter.submitted == []


async def test_a_validation_yaml_is_played_there_too(tmp_path):
    """Its dataset and evaluators are its own; the workflow is the one at the URL."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        with project.registered():
            async with served(project) as url:
                given = project.given(endpoint=url, validation_dataset=str(project.held_out))
                result = await project.run_given(
                    given.model_copy(update={"validation_config_file": str(given.config_file)})
                )
    assert result.comparison is not None
    assert project.built == 1


class HostedConfig(LLMBaseConfig, name="hosted_here"):
    """A model that the harness serves for itself."""


async def test_a_model_of_this_process_cannot_be_asked_for_there(tmp_path):
    """The workflow there would sample another model than the one that is trained: an error, and what works."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        project.config["llms"]["hosted"] = {"_type": "hosted_here"}
        project.config["trainer_adapters"]["adapter"]["llm"] = "hosted"
        with project.registered():

            @register_llm_provider(config_type=HostedConfig)
            async def hosted(config, builder):
                yield LLMProviderInfo(config=OpenAIModelConfig(model_name="m", base_url=server.base_url))

            async with served(project) as url:
                with pytest.raises(
                    ConfigError,
                    match=r"llms.hosted: its model is served inside this process only(?s:.*)nat backend serve",
                ):
                    await project.run(endpoint=url)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


async def _health(url: str) -> Any:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(f"{url}/health")).json()

"""Finetuning a workflow behind a URL equals training in this process, or fails with a reason."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.finetuning_project import FinetuningProject
from fakes.openai_replies import prompt_ids
from fakes.openai_server import OpenAIServer, Say
from fakes.served_workflow import serving_file, url_of
from nat.builder.context import Context
from nat.builder.llm import LLMProviderInfo
from nat.data_models.finetuning import TrajectoryCollection
from nat.data_models.llm import LLMBaseConfig
from nat.errors import BackendUnreachable, ConfigError, NoTrajectories
from nat.finetuning.dry_run import dry_run
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.decorators import register_llm_provider
from nat.runs.records import Phase


def dice(request) -> Say:
    """An answer that depends on the seed and the conversation, as of a real sampler."""
    seed = request.body.get("seed", 0)
    return Say("right" if (seed + len(prompt_ids(request.messages))) % 2 else f"wrong {seed}")


async def agent(question: str, ask: Any) -> str:
    """Two calls in one function, the first with its own reward, and one call in a function that is not trained."""
    with Context.get().push_active_function("critic", input_data=question):
        await ask(f"criticise {question}, {Context.get().rollout_seed}")
    with Context.get().push_active_function("solver", input_data=question):
        Context.get().reward(len(await ask(question)) / 100)
        return await ask(question)


@asynccontextmanager
async def served(project: FinetuningProject) -> AsyncIterator[str]:
    """The project's YAML, served at a URL."""
    async with serving_file(project.given().config_file) as client:
        yield url_of(client)


def trained_data(collections: list[TrajectoryCollection]) -> list[Any]:
    """Everything that the trainer got, without the run's id."""
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
async def test_the_same_data_is_trained_on(tmp_path, credit):
    """Messages, log probabilities, ids, rewards, groups and the journal equal those of a local run."""
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
    assert trained_data(there.adapter.submitted) == trained_data(here.adapter.submitted)
    trajectory = there.adapter.submitted[0].trajectories[0][0]
    assert (trajectory.shaped_rewards is not None) == (credit == "return_to_go")
    assert all("criticise" not in item.content for item in trajectory.episode)
    assert all(item.metadata["token_ids"] for item in trajectory.episode if item.role == "assistant")
    with here.journal() as first, there.journal() as second:
        for phase, epoch in ((Phase.VALIDATION, 0), (Phase.TRAIN, 0), (Phase.TRAIN, 1), (Phase.VALIDATION, 2)):
            mine, other = (
                [r.model_dump(exclude={"seconds"}) for r in journal.rollouts(phase, epoch)]
                for journal in (first, second)
            )
            assert mine == other != []
    assert there.built == 1


async def test_a_dead_endpoint_is_an_error_before_any_rollout(tmp_path):
    """A run and a dry run both report it."""
    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, agent)
        with project.registered():
            for play in (project.run_given, dry_run):
                with pytest.raises(BackendUnreachable, match=r"no served workflow answers at http://127.0.0.1:9"):
                    await play(project.given(endpoint="http://127.0.0.1:9"))
        assert server.requests == []


async def test_remote_failures_are_counted_here(tmp_path):
    """Remote failures have a cause and never a reward of 0; too many end the run."""

    async def fails(question, ask):
        raise KeyError("board")

    async with OpenAIServer(dice) as server:
        project = FinetuningProject(tmp_path, server, fails)
        with project.registered():
            async with served(project) as url:
                with pytest.raises(NoTrajectories, match="RemoteFailure: KeyError: 'board'"):
                    await project.run(endpoint=url)
    assert project.adapter.submitted == []


class HostedConfig(LLMBaseConfig, name="hosted_here"):
    """An LLM that the harness serves inside its own process."""


async def test_a_model_of_this_process_cannot_be_trained_at_an_endpoint(tmp_path):
    """The remote workflow would sample another model; the error says what works."""
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

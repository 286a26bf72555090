"""An agent's own sampling parameters in a run: which answers are trained, left out or reported."""

import json

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.builder.context import Context
from nat.errors import ConfigError
from nat.finetuning.trajectories.rows import training_groups


def sampling(**fields):
    async def agent(question, ask):
        with Context.get().push_active_function("player", question):
            return await ask(question, **fields)

    return agent


async def planner_and_player(question, ask):
    """Of two functions, one samples greedily and the other at random."""
    with Context.get().push_active_function("planner", question):
        await ask(f"plan {question}", temperature=0)
    with Context.get().push_active_function("player", question):
        return await ask(question)


async def test_greedy_calls_are_left_out_and_reported_once(tmp_path, caplog):
    """Over two epochs one warning names the function; the other function's answers are trained on."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, planner_and_player)
        with project.registered():
            await project.run()
    assert caplog.text.count("function 'planner' samples with temperature=0 (8 calls)") == 1
    assert "function 'player'" not in caplog.text
    groups = training_groups(project.adapter.submitted[0])
    assert {row.num_sampled for group in groups for r in group.rollouts for row in r.rows} == {len("right") + 1}
    with project.journal() as journal:
        assert [epoch.metrics["drift/untrainable_calls"] for epoch in journal.epochs()] == [8, 8]


async def test_sampling_is_replaced_in_training_only(tmp_path):
    """Held-out examples are played greedily, as the agent is deployed."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, sampling(temperature=0, top_p=0.9))
        project.finetuning["sampling_in_training"] = {"temperature": 1.2}
        project.finetuning["target_model"] = "student"
        with project.registered():
            await project.run(validation_dataset=str(project.held_out))
        asked = [(body["temperature"], body["top_p"]) for body in server.bodies]
    assert asked.count((1.2, 1)) == 2 * 4 * 2
    assert asked.count((0, 0.9)) == len(asked) - 2 * 4 * 2 == 2 * 8
    assert len(project.adapter.submitted) == 2


@pytest.mark.parametrize("target", ["student", "tiny", None])
@pytest.mark.parametrize("how", [{"top_p": 0.9}, {"temperature": 0}, {"extra_body": {"top_k": 20}}])
async def test_a_block_without_trainable_answers_is_an_early_error(tmp_path, how, target):
    """The error comes before any rollout; with sampling_in_training the run continues."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"] |= how
        project.finetuning["target_model"] = target
        with project.registered():
            with pytest.raises(ConfigError, match=r"llms\.student: .* cannot be trained on") as error:
                await project.run()
            assert server.bodies == []
            assert "sampling_in_training" in str(error.value)
            project.finetuning["sampling_in_training"] = {}
            await project.run()
    assert len(project.adapter.submitted) == 2


async def test_a_forced_answer_format_is_an_early_error(tmp_path):
    """`sampling_in_training` keeps the format, because the agent reads it, so nothing could be trained on."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"]["extra_body"] = {"response_format": {"type": "json_object"}}
        project.finetuning["sampling_in_training"] = {"temperature": 1.0}
        with project.registered(), pytest.raises(ConfigError, match="answer without response_format"):
            await project.run()
        assert server.bodies == []


async def test_an_unreported_temperature_is_a_warning(tmp_path, caplog):
    """The warning has the function's name, the consequence and the remedy; each epoch counts its answers."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, sampling(temperature=0.5))
        with project.registered():
            await project.run()
    assert caplog.text.count("function 'player' samples with temperature=0.5 (8 calls), but the server does") == 1
    assert "so the answers are trained as if they were sampled at 1" in caplog.text
    with project.journal() as journal:
        assert [epoch.metrics["drift/untempered_calls"] for epoch in journal.epochs()] == [8, 8]
    lines = (project.output_dir / "latest" / "training_metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["metrics"]["drift/untempered_calls"] == 8

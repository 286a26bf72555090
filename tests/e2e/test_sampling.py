"""An agent's own sampling parameters in a finetuning run: what is trained, what is left out, and what is told."""

import json
from dataclasses import replace

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer
from nat.builder.context import Context
from nat.errors import ConfigError, UntrainableSampling
from nat.finetuning.trajectories.rows import training_groups
from nat.runs.records import Phase
from nat.runs.rollouts import LeftOutCause


class OurCoin(Coin):
    """Of a server that says at which temperature its log probabilities are."""

    def __call__(self, request):
        return replace(super().__call__(request), tempered=True)


def sampling(**fields):
    async def agent(question, ask):
        with Context.get().push_active_function("player", question):
            return await ask(question, **fields)

    return agent


async def planner_and_player(question, ask):
    """One function takes the likeliest tokens, the other one samples."""
    with Context.get().push_active_function("planner", question):
        await ask(f"plan {question}", temperature=0)
    with Context.get().push_active_function("player", question):
        return await ask(question)


async def test_an_agent_that_is_greedy_everywhere_is_told_so(tmp_path):
    """The function, the field and the remedies, not that there are no trajectories; the rollouts say why."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server, sampling(temperature=0))
        with project.registered(), pytest.raises(UntrainableSampling) as error:
            await project.run()
    text = str(error.value)
    assert "8 x player: temperature=0" in text
    assert "finetuning.sampling_in_training: {temperature: 1.0}" in text
    assert project.adapter.submitted == []
    with project.journal() as journal:
        records = list(journal.rollouts(Phase.TRAIN, 0))
    assert {record.left_out for record in records} == {LeftOutCause.UNTRAINABLE_SAMPLING}
    assert records[0].untrainable_calls == {"player": {"temperature=0": 1}}


async def test_greedy_calls_among_others_are_left_out_counted_and_told_once(tmp_path, caplog):
    """Over two epochs one warning, with the function's name; what is trained on are the other function's answers."""
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


async def test_sampling_is_replaced_in_training_and_nowhere_else(tmp_path):
    """The held-out examples are played as the agent is deployed: greedily."""
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
async def test_a_block_that_leaves_nothing_to_train_on_is_an_early_error(tmp_path, how, target):
    """Before anything is played; with sampling_in_training the run goes on."""
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


async def test_a_form_that_a_block_forces_is_an_early_error_whatever_is_replaced(tmp_path):
    """The agent reads that form, so `sampling_in_training` leaves it, and nothing could be trained on."""
    async with OpenAIServer(Coin()) as server:
        project = FinetuningProject(tmp_path, server)
        project.config["llms"]["student"]["extra_body"] = {"response_format": {"type": "json_object"}}
        project.finetuning["sampling_in_training"] = {"temperature": 1.0}
        with project.registered(), pytest.raises(ConfigError, match="answer without response_format"):
            await project.run()
        assert server.bodies == []


async def test_a_temperature_is_trained_where_the_server_reports_at_it(tmp_path, caplog):
    """Each row carries it to the backend, and nothing is warned of."""
    async with OpenAIServer(OurCoin()) as server:
        project = FinetuningProject(tmp_path, server, sampling(temperature=0.5))
        with project.registered():
            await project.run()
    groups = training_groups(project.adapter.submitted[0])
    told = [row.temperatures for group in groups for rollout in group.rollouts for row in rollout.rows]
    assert {entry.temperature for entries in told for entry in entries or ()} == {0.5}
    assert "function 'player'" not in caplog.text


async def test_a_temperature_that_a_foreign_server_does_not_report_is_not_trained_silently(tmp_path, caplog):
    """The function's name, what is done with its answers, and the remedy; once, and counted in each epoch."""
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

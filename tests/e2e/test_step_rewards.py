"""Rewards of single steps, from the workflow or the evaluator to the backend."""

import pytest

from fakes.finetuning_project import Coin, FinetuningProject
from fakes.openai_server import OpenAIServer, Say
from nat.builder.context import Context
from nat.builder.evaluator import EvaluatorInfo
from nat.data_models.evaluator import EvalOutputItem, EvaluatorBaseConfig
from nat.errors import ConfigError
from nat.eval.evaluator.base_evaluator import BaseEvaluator
from nat.finetuning.trajectories.rows import training_groups
from nat.registry.decorators import register_evaluator
from nat.runs.records import Phase


async def two_moves(question, ask):
    """The first move always earns a point; the second earns only the score."""
    await ask(f"first {question}")
    Context.get().reward(1.0)
    return await ask(question)


def project_of(tmp_path, server, **reward):
    project = FinetuningProject(tmp_path, server, two_moves)
    project.finetuning["reward_function"] = {"name": "match", **reward}
    project.finetuning["num_epochs"] = 1
    return project


def values_of(rollout):
    return [span.value for row in rollout.rows for span in row.spans if span.value is not None]


def by_reward(rollouts):
    """The rollouts of a group, worst first: which of two concurrent rollouts meets which side of the coin is chance."""
    return sorted(rollouts, key=lambda rollout: rollout.reward)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ({}, [[], []]),
        ({"credit": "per_step"}, [[1, 0], [1, 1]]),
        ({"credit": "return_to_go"}, [[1, 0], [2, 1]]),
        ({"credit": "return_to_go", "gamma": 0.5}, [[1, 0], [1.5, 1]]),
    ],
)
async def test_credit_sets_the_number_by_which_answers_are_compared(tmp_path, reward, expected):
    """Answers are compared by the rollout's score, or, with credit, by one number per answer in backend and journal."""
    async with OpenAIServer(Coin()) as server:
        project = project_of(tmp_path, server, **reward)
        with project.registered():
            await project.run()
    (collection,) = project.adapter.submitted
    for group in training_groups(collection):
        rollouts = by_reward(group.rollouts)
        assert [values_of(rollout) for rollout in rollouts] == expected
        assert [rollout.reward for rollout in rollouts] == [0, 1]
    with project.journal() as journal:
        kept = [values_of(record) for record in journal.rollouts(Phase.TRAIN, 0)]
    assert sorted(kept) == sorted(expected * 4)


class MovesConfig(EvaluatorBaseConfig, name="test_moves"):
    pass


class Moves(BaseEvaluator):
    """An evaluator that scores the game and gives each call its own reward."""

    async def evaluate_item(self, item):
        won = item.output_obj == "right"
        return EvalOutputItem(id=item.id, score=float(won), reasoning="", step_rewards={0: 0.25, -1: float(won)})


async def test_an_evaluator_can_reward_single_calls(tmp_path):
    """Step rewards of an evaluator replace the score in training; reports still show the score."""

    async def build(config, builder):
        yield EvaluatorInfo(config=config, evaluate_fn=Moves().evaluate, description="")

    async def quiet(question, ask):
        await ask(f"first {question}")
        return await ask(question)

    async with OpenAIServer(Coin()) as server:
        project = project_of(tmp_path, server, credit="per_step")
        project.agent = quiet
        project.config["eval"]["evaluators"]["match"] = {"_type": "test_moves"}
        with project.registered():
            register_evaluator(config_type=MovesConfig)(build)
            await project.run()
    for group in project.adapter.submitted[0].trajectories:
        trajectories = by_reward(group)
        assert [t.shaped_rewards for t in trajectories] == [[0.25, 0.0], [0.25, 1.0]]
        assert [t.reward for t in trajectories] == [0.0, 1.0]


async def test_a_builder_without_step_rewards_is_an_error(tmp_path):
    """A trajectory builder that ignores credit is an error, because the option would have no effect."""
    async with OpenAIServer(lambda _request: Say("right")) as server:
        project = project_of(tmp_path, server, credit="per_step")
        project.forget_shaped_rewards = True
        with project.registered(), pytest.raises(ConfigError, match=r"8 of 8 trajectories have no shaped_rewards"):
            await project.run()

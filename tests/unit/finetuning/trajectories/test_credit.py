"""Step rewards are credited to answers and summed to returns, up to the rows for a backend."""

from uuid import uuid4

import pytest

from fakes.llm_steps import assistant, call, steps, user
from nat.builder.context import ContextState
from nat.data_models.evaluator import EvalInputItem, EvalOutputItem
from nat.data_models.finetuning import RewardFunctionConfig, Trajectory
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
)
from nat.errors import EvaluationError
from nat.finetuning.trajectories.calls import Target, calls_of
from nat.finetuning.trajectories.credit import credit_warnings, earned, given_rewards
from nat.finetuning.trajectories.outcome import scored


def node(name, caller=None):
    return InvocationNode(function_id=name, function_name=name, parent_id=caller)


def said(text, function="agent", caller=None):
    """The steps of a function's call."""
    made = steps(call([user(text)], f"answer to {text}"), function=function)
    return [step.model_copy(update={"function_ancestry": node(function, caller)}) for step in made]


def ended(metadata, function="agent", caller=None, kind=IntermediateStepType.CUSTOM_END):
    payload = IntermediateStepPayload(event_type=kind, name="step", metadata=metadata, UUID=str(uuid4()))
    return IntermediateStep(parent_id="root", function_ancestry=node(function, caller), payload=payload)


def found(stream, *, trained=None, named=None):
    """The rewards of the trained calls (of all calls by default), and the number of rewards without an answer."""
    seen = calls_of(stream)
    chosen = seen if trained is None else [seen[number] for number in trained]
    return earned(stream, given_rewards(stream, seen, named or {}), chosen)


def test_a_reward_is_for_the_last_answer_before_it():
    """Rewards after one answer add up; an answer without a reward earned nothing."""
    stream = [
        *said("1"),
        ended({"reward": 0.5}),
        ended({"reward": 0.25}),
        *said("2"),
        *said("3"),
        ended({"reward": -1}),
    ]
    assert found(stream) == ([0.75, 0.0, -1.0], 0)


def test_concurrent_agents_earn_their_own_rewards():
    """A reward is credited within the function that gave it, even if other functions' answers come between."""
    stream = [
        *said("a", "left", "flow"),
        *said("b", "right", "flow"),
        ended({"reward": 1.0}, "left", "flow"),
        ended({"reward": 2.0}, "right", "flow"),
    ]
    assert found(stream) == ([1.0, 2.0], 0)


def test_a_reward_may_be_for_an_earlier_step():
    """The workflow names the step; the evaluator names a step, or a call by its number from either end."""
    step = ended({})
    stream = [*said("1"), step, *said("2"), ended({"reward": 1.0, "reward_step": step.UUID})]
    assert found(stream) == ([1.0, 0.0], 0)
    assert found(stream[:-1], named={step.UUID: 0.5, -1: 2.0, 0: 0.25}) == ([0.75, 2.0], 0)
    assert found(stream[:-1], named={stream[0].UUID: 3.0}) == ([3.0, 0.0], 0)


@pytest.mark.parametrize(
    ("metadata", "named", "words"),
    [
        ({"reward": "good"}, {}, "'good' .*, not a number"),
        ({"reward": float("nan")}, {}, "nan, not a finite number"),
        ({"reward": 1.0, "reward_step": "gone"}, {}, "step 'gone', which is not among"),
        ({}, {1: 1.0}, "tied to call 1, but the rollout made 1 calls"),
        ({}, {"gone": 1.0}, "step 'gone'"),
        ({}, {0: float("inf")}, "inf, not a finite number"),
    ],
)
def test_a_reward_that_cannot_be_credited_is_an_error(metadata, named, words):
    """A wrong step name or an invalid number is an error, because it would train on something else."""
    with pytest.raises(EvaluationError, match=words):
        found([*said("1"), ended(metadata)], named=named)


FIRST = call([user("1")], "a", ids=([1], [2]))
AGENT = call([user("other")], "x", ids=([8], [9]))
SECOND = call([user("1"), assistant("a"), user("2")], "b", ids=([1, 2, 3], [4, 5]))
"""A conversation of two answers with another conversation between them."""


def config(credit, **fields):
    return RewardFunctionConfig(name="match", credit=credit, **fields)


def outcome(credit, *, reward=10.0, step_rewards=None, gamma=1.0):
    """A rollout of three calls, in which the first answer earned 1 and the other agent's answer 2."""
    stream, state = [], ContextState()
    state.intermediate_step_manager.subscribe(stream.append)
    with state.active() as context:
        for made, value in ((FIRST, 1.0), (AGENT, 2.0), (SECOND, None)):
            for step in steps(made):
                context.intermediate_step_manager.push_intermediate_step(step.payload)
            if value is not None:
                context.reward(value)
    item = EvalInputItem(id="e", input_obj="", expected_output_obj="", output_obj="o", trajectory=stream)
    score = EvalOutputItem(id="e", score=reward, reasoning="", step_rewards=step_rewards)
    given = config(credit, gamma=gamma)
    return scored(
        item, score, reward, generation=0, target=Target(["<workflow>", "root"]), credit=given, metadata={}, facts={}
    )


@pytest.mark.parametrize(
    ("credit", "fields", "shaped"),
    [
        ("per_step", {}, [1, 10, 2]),
        ("return_to_go", {}, [13, 10, 12]),
        ("return_to_go", {"gamma": 0.5}, [4.5, 10, 7]),
        ("per_step", {"step_rewards": {0: 5.0}}, [6, 0, 2]),
        ("return_to_go", {"step_rewards": {-1: 5.0}}, [8, 5, 7]),
    ],
)
def test_shaped_rewards_follow_the_order_of_the_episode(credit, fields, shaped):
    """The score is credited to the last answer unless the evaluator gives step rewards."""
    trajectory = outcome(credit, **fields)[1]
    assert [item.content for item in trajectory.answers] == ["a", "b", "x"]
    assert trajectory.shaped_rewards == shaped
    assert trajectory.reward == 10.0


def facts(**metadata):
    return Trajectory(episode=[], reward=0.0, metadata=metadata)


def test_lost_step_rewards_are_a_warning():
    """The warning reports that no reward was given, or how many reached no answer."""
    assert "no step of 1 rollouts has a reward" in credit_warnings(config("per_step"), [facts(step_rewards=0)])[0]
    found = credit_warnings(config("per_step"), [facts(step_rewards=3, uncredited_rewards=2)])
    assert [text.split(" in ")[0] for text in found] == ["2 rewards of steps"]
    assert credit_warnings(config("return_to_go", gamma=0.9), [facts(step_rewards=0)]) == []
    assert credit_warnings(config("outcome"), [facts()]) == []

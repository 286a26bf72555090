"""Which answer earns the reward of a step."""

from uuid import uuid4

import pytest

from fakes.llm_steps import call, steps, user
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    TraceMetadata,
)
from nat.errors import EvaluationError
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.credit import Steps


def node(name, caller=None):
    return InvocationNode(function_id=name, function_name=name, parent_id=caller)


def said(text, function="agent", caller=None):
    """The steps of a call that a function made."""
    made = steps(call([user(text)], f"answer to {text}"), function=function)
    return [step.model_copy(update={"function_ancestry": node(function, caller)}) for step in made]


def ended(metadata, function="agent", caller=None, kind=IntermediateStepType.CUSTOM_END):
    payload = IntermediateStepPayload(event_type=kind, name="step", metadata=metadata, UUID=str(uuid4()))
    return IntermediateStep(parent_id="root", function_ancestry=node(function, caller), payload=payload)


def earned(stream, *, trained=None, named=None):
    """The rewards of the trained calls (all of them, if not said), and how many rewards nobody earned."""
    seen = calls_of(stream)
    chosen = seen if trained is None else [seen[number] for number in trained]
    found = Steps(stream, seen)
    credited = found.credit([*found.pushed(), *found.named(named or {})], chosen)
    return credited.rewards, credited.uncredited


def test_a_reward_is_for_the_last_answer_before_it():
    """Several rewards of one answer add up; an answer without one earned nothing."""
    stream = [
        *said("1"),
        ended({"reward": 0.5}),
        ended({"reward": 0.25}),
        *said("2"),
        *said("3"),
        ended({"reward": -1}),
    ]
    assert earned(stream) == ([0.75, 0.0, -1.0], 0)


def test_any_step_that_ends_can_carry_a_reward():
    """The result of a tool that the workflow pushed, say; what begins carries none, lest it count twice."""
    tool = {"reward": 2.0}
    stream = [*said("1"), ended(tool, kind=IntermediateStepType.TOOL_START)]
    assert earned([*stream, ended(tool, kind=IntermediateStepType.TOOL_END)]) == ([2.0], 0)
    assert earned([*said("1"), ended(TraceMetadata(reward=2.0))]) == ([2.0], 0)


def test_parallel_agents_earn_their_own_rewards():
    """Between the answers of one function come those of another; each reward stays in the function that gave it."""
    stream = [
        *said("a", "left", "flow"),
        *said("b", "right", "flow"),
        ended({"reward": 1.0}, "left", "flow"),
        ended({"reward": 2.0}, "right", "flow"),
    ]
    assert earned(stream) == ([1.0, 2.0], 0)


def test_a_tool_rewards_the_answer_that_called_it():
    """The tool asked no model itself, so its caller earned it, and not an agent that runs beside it."""
    stream = [*said("plan", "agent", "flow"), *said("x", "other", "flow"), ended({"reward": 1.0}, "tool", "agent")]
    assert earned(stream) == ([1.0, 0.0], 0)


def test_what_a_function_called_is_its_own():
    """A reward after a sub-agent is for the sub-agent's last answer."""
    stream = [*said("1", "flow"), *said("2", "agent", "flow"), ended({"reward": 1.0}, "flow")]
    assert earned(stream) == ([0.0, 1.0], 0)


def test_only_trained_answers_earn():
    """What a judge's answer was given goes to the answer before it; nobody earns what came before all of them."""
    stream = [ended({"reward": 4.0}), *said("1"), *said("judge"), ended({"reward": 1.0}), *said("2")]
    assert earned(stream, trained=[0, 2]) == ([1.0, 0.0], 1)


def test_a_reward_may_be_for_an_earlier_step():
    """The workflow names the step; the evaluator names a step, or a call by its number from either end."""
    step = ended({})
    stream = [*said("1"), step, *said("2"), ended({"reward": 1.0, "reward_step": step.UUID})]
    assert earned(stream) == ([1.0, 0.0], 0)
    assert earned(stream[:-1], named={step.UUID: 0.5, -1: 2.0, 0: 0.25}) == ([0.75, 2.0], 0)
    assert earned(stream[:-1], named={stream[0].UUID: 3.0}) == ([3.0, 0.0], 0)


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
    """A wrong name or a number that is none would silently train on something else."""
    with pytest.raises(EvaluationError, match=words):
        earned([*said("1"), ended(metadata)], named=named)

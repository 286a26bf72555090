import pytest

from fakes.llm_steps import call, steps, user
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
)
from nat.finetuning.trajectories.calls import Target, calls_of
from nat.runs.rollouts import LeftOutCause


def test_captured_calls_come_in_order_with_their_function():
    """The recorded call is used unchanged; its function is the innermost active one."""
    first, second = call([user("a")], "b"), call([user("c")], "d")
    seen = calls_of([*steps(first, function="planner"), *steps(second)])
    assert [(s.call, s.function) for s in seen] == [(first, "planner"), (second, "<workflow>")]


def test_steps_of_the_workflow_have_no_token_ids():
    """A workflow that pushes LLM steps gives messages, text and logprobs, but no token ids."""
    node = InvocationNode(function_id="f", function_name="f")
    start = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_START, name="gpt", data=StreamEventData(input=[user("hi")])
    )
    end = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_END,
        name="gpt",
        UUID=start.UUID,
        data=StreamEventData(output="ho", payload={"logprobs": {"content": [{"token": "ho", "logprob": -1.5}]}}),
    )
    pushed = [IntermediateStep(parent_id="root", function_ancestry=node, payload=p) for p in (start, end)]
    seen = calls_of(pushed)[0]
    assert (seen.call.model, seen.call.messages, seen.call.message["content"]) == ("gpt", [user("hi")], "ho")
    assert (seen.call.logprobs, seen.call.token_ids) == ([-1.5], None)
    assert seen.logprobs == {"content": [{"token": "ho", "logprob": -1.5}]}


PLAN = call([user("plan")], "p", llm_name="big", model="gpt")
MOVE = call([user("move")], "m", llm_name="student", model="tiny")
SEEN = calls_of([*steps(PLAN, function="planner"), *steps(MOVE)])


def chosen(functions, model=None):
    return [s.call for s in Target(functions, model).select(SEEN).calls]


@pytest.mark.parametrize("name", ["student", "tiny"])
def test_the_target_model_is_a_yaml_key_or_a_model_name(name):
    """Both names of an LLM select its calls."""
    assert chosen(["<workflow>"], name) == [MOVE]


def test_untrainable_calls_are_left_out_and_counted():
    """Greedy calls are no samples of the trained distribution; other calls, also with a temperature, are trained on."""
    greedy = call([user("g")], "g", untrainable_by=["temperature=0"])
    cold = call([user("c")], "c", temperature=0.4, logprobs_temperature=0.4)
    mixed = Target(["<workflow>"]).select(calls_of(steps(greedy, cold)))
    assert [s.call for s in mixed.calls] == [cold]
    assert [s.call for s in mixed.untrainable] == [greedy]
    alone = Target(["<workflow>"]).select(calls_of(steps(greedy)))
    assert (alone.cause, len(alone.untrainable)) == (LeftOutCause.UNTRAINABLE_SAMPLING, 1)
    silent = call([user("s")], "s", logprobs=None)
    neither = Target(["<workflow>"]).select(calls_of(steps(greedy, silent)))
    assert neither.cause is LeftOutCause.NO_LOGPROBS

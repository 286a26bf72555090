from fakes.llm_steps import call, steps, system, user
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
)
from nat.finetuning.trajectories.calls import calls_of, token_logprobs


def test_captured_calls_come_in_order_with_their_function():
    """The record of the wire is taken as it is; the function is the innermost one that ran."""
    first, second = call([user("a")], "b"), call([user("c")], "d")
    seen = calls_of([*steps(first, function="planner"), *steps(second)])
    assert [(s.call, s.function) for s in seen] == [(first, "planner"), (second, "<workflow>")]


def test_calls_survive_a_dump_of_their_steps():
    """Steps that went through JSON carry dicts; the call is read out of them all the same."""
    made = call([system("s"), user("u")], "a", ids=([1, 2], [3]))
    dumped = [IntermediateStep.model_validate(step.model_dump(mode="json")) for step in steps(made)]
    assert calls_of(dumped)[0].call == made


def test_steps_pushed_by_hand_count_with_what_they_tell():
    """A workflow that pushes LLM steps by itself gives messages, text and logprobs, but no token ids."""
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


def test_token_logprobs_reads_both_shapes_and_nothing_else():
    """OpenAI's object and a plain list give numbers; what has no number for each token gives None."""
    assert token_logprobs({"content": [{"logprob": -0.5}, {"logprob": 0}]}) == [-0.5, 0.0]
    assert token_logprobs([-0.25]) == [-0.25]
    assert token_logprobs({"content": [{"token": "a"}]}) is None
    assert token_logprobs({}) is None
    assert token_logprobs(None) is None

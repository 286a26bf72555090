"""Rollouts as spans: what each span has, how they lie inside each other, and when a rollout's own is sent."""

from fakes.llm_steps import call, steps, user
from fakes.made_spans import CollectedTraces, rollout
from fakes.openai_replies import tool_call
from nat.builder.context import Context, ContextState
from nat.capture.steps import FailedCall, failure_steps
from nat.data_models.evaluator import EvalOutput, EvalOutputItem
from nat.data_models.intermediate_step import (
    IntermediateStepPayload,
    IntermediateStepType,
)
from nat.secrets import known_secrets

OFFERED = [{"type": "function", "function": {"name": "search", "parameters": {}}}]


def recorded(play):
    """The steps that `play` pushes inside a rollout's workflow."""
    pushed = []
    with ContextState().active() as context:
        context.intermediate_step_manager.subscribe(pushed.append)
        whole = {"UUID": "w", "name": "<workflow>"}
        push(IntermediateStepType.WORKFLOW_START, **whole)
        with context.push_active_function("<workflow>", "q"):
            play(context)
        push(IntermediateStepType.WORKFLOW_END, **whole)
    return pushed


def push(event, **fields):
    payload = IntermediateStepPayload(event_type=event, **fields)
    Context.get().intermediate_step_manager.push_intermediate_step(payload)


def push_call(made):
    for step in steps(made):
        Context.get().intermediate_step_manager.push_intermediate_step(step.payload)


def inside(made, **fields):
    """The spans of a rollout of these steps, without its own."""
    traces = CollectedTraces()
    traces.ended(rollout(steps=made, **fields), "q", is_judged=False)
    return [span for span in traces.spans if span.parent is not None]


def attributes(made):
    [span] = inside(steps(made))
    return span.attributes


def test_a_call_has_its_model_messages_and_tokens():
    """Under OpenInference's names."""
    found = attributes(call([user("be brief"), user("hi")], "hello", temperature=0.5, policy_version="v3"))
    assert (found["openinference.span.kind"], found["llm.model_name"]) == ("LLM", "tiny")
    assert found["llm.invocation_parameters"] == '{"temperature":0.5}'
    assert (found["llm.finish_reason"], found["nat.finetune.weight_version"]) == ("stop", "v3")
    assert found["llm.input_messages.1.message.content"] == found["input.value"] == "hi"
    assert found["llm.output_messages.0.message.content"] == found["output.value"] == "hello"


def test_functions_tools_and_calls_lie_inside_each_other():
    """The workflow is the rollout's own span; a function that the model was offered is a tool."""
    asks = {"role": "assistant", "content": "", "tool_calls": [tool_call("search", {})]}

    def play(context):
        with context.push_active_function("plan", "q"):
            push_call(call([user("q")], asks, tools=OFFERED))
            with context.push_active_function("search", {"text": "x"}) as active:
                active.set_output("found")
        push_call(call([user("q")], "done"))

    traces = CollectedTraces(workflow="agent")
    traces.ended(rollout(steps=recorded(play)), "q", is_judged=False)
    known = {span.context.span_id: span.name for span in traces.spans}
    assert {(known.get(span.parent and span.parent.span_id), span.name) for span in traces.spans} == {
        (None, "invoke_workflow agent"),
        ("invoke_workflow agent", "plan"),
        ("plan", "chat tiny"),
        ("plan", "execute_tool search"),
        ("invoke_workflow agent", "chat tiny"),
    }
    assert len({span.context.trace_id for span in traces.spans}) == 1
    kinds = {span.name: span.attributes["openinference.span.kind"] for span in traces.spans}
    assert kinds == {
        "invoke_workflow agent": "AGENT",
        "plan": "CHAIN",
        "chat tiny": "LLM",
        "execute_tool search": "TOOL",
    }
    [tool] = [span.attributes for span in traces.spans if span.name == "execute_tool search"]
    assert (tool["tool.parameters"], tool["output.value"]) == ('{"text":"x"}', "found")


def test_a_failed_attempt_is_a_call_with_its_error():
    """Each attempt of a client's retries is a span, with the server's words."""

    def play(_context):
        failed = FailedCall(model="tiny", status=503, error="overloaded")
        for step in failure_steps(failed, (1.0, 2.0), None):
            Context.get().intermediate_step_manager.push_intermediate_step(step)

    [span] = inside(recorded(play))
    assert (span.name, span.status.description) == ("chat tiny", "503: overloaded")
    assert span.end_time - span.start_time == 1_000_000_000


def output(**scores):
    items = [EvalOutputItem(id=name, score=score, reasoning=None) for name, score in scores.items()]
    return EvalOutput(average_score=None, eval_output_items=items)


def test_a_judged_rollout_waits_for_its_scores():
    """Its span has the scores of all evaluators."""
    traces = CollectedTraces()
    for name in ("a", "b", "c"):
        traces.ended(rollout(name, steps=steps(call([user("q")], "a"))), "q", is_judged=True)
    assert traces.spans == []
    traces.evaluated(["a", "b"], [("match", output(a=1.0, b=0.0)), ("tone", output(a=0.5))])
    assert traces.of("nat.evaluation.match") == [1.0, 0.0]
    assert traces.of("nat.evaluation.tone") == [0.5, None]


def test_the_end_sends_rollouts_without_a_verdict():
    """An interrupted command leaves no trace without its root."""
    traces = CollectedTraces()
    for name in ("a", "a", "b"):
        traces.ended(rollout(name), "q", is_judged=True)
    traces.close()
    assert traces.of("nat.finetune.example_id") == ["a", "a", "b"]


def test_secrets_leave_no_span():
    """Texts are redacted as everywhere."""
    known_secrets.remember(["hunter2hunter2"])
    traces = CollectedTraces()
    made = call([user("key hunter2hunter2")], {"role": "assistant", "content": "hunter2hunter2"})
    traces.ended(rollout(steps=steps(made)), {"k": "hunter2hunter2"}, is_judged=False)
    assert len(traces.spans) == 2
    assert "hunter2" not in str([span.to_json() for span in traces.spans])

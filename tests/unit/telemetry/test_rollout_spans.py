import asyncio
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from fakes.llm_steps import call, steps, user
from fakes.made_spans import ended, root
from fakes.openai_replies import tool_call
from nat.builder.context import Context, ContextState
from nat.capture.steps import CallTimes, FailedCall, failure_steps
from nat.data_models.intermediate_step import IntermediateStepPayload, IntermediateStepType, StreamEventData
from nat.secrets import known_secrets
from nat.telemetry.otlp import readable
from nat.telemetry.rollout_spans import Evaluation, inner_spans, num_inside, rollout_span
from nat.telemetry.span_file import SpanFile


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


def tree(spans):
    """The names of the spans below each."""
    known = {span.span_id: span.name for span in spans}
    return [(known.get(span.parent_id, "rollout"), span.name) for span in spans]


def test_functions_tools_and_calls_lie_inside_each_other():
    """The workflow is the rollout's own span; a function that the model was offered is a tool."""
    offered = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    asks = {"role": "assistant", "content": None, "tool_calls": [tool_call("search", {})]}

    def play(context):
        with context.push_active_function("plan", "q"):
            push_call(call([user("q")], asks | {"content": ""}, tools=offered))
            with context.push_active_function("search", {"text": "x"}) as active:
                active.set_output("found")
        push_call(call([user("q")], "done"))

    pushed = recorded(play)
    spans = inner_spans(ended(), pushed)
    assert tree(spans) == [
        ("plan", "chat tiny"),
        ("plan", "execute_tool search"),
        ("rollout", "plan"),
        ("rollout", "chat tiny"),
    ]
    assert len(spans) == num_inside(pushed)
    tool = spans[1].attributes
    assert tool["gen_ai.tool.name"] == tool["tool.name"] == "search"
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == ('{"text":"x"}', "found")
    assert [span.attributes["openinference.span.kind"] for span in spans] == ["LLM", "TOOL", "CHAIN", "LLM"]
    assert [span.remote for span in spans] == [True, False, False, True]
    assert {span.parent_id for span in spans[2:]} == {rollout_span(ended(), {}, ()).span_id}


def test_a_failed_attempt_is_a_call_with_its_error():
    """Each attempt of a client's retries is a span, with the server's words."""

    def play(_context):
        failed = FailedCall(model="tiny", status=503, error="overloaded")
        for step in failure_steps(failed, CallTimes(1.0, 2.0), None):
            Context.get().intermediate_step_manager.push_intermediate_step(step)

    (span,) = inner_spans(ended(), recorded(play))
    assert (span.name, span.error) == ("chat tiny", "503: overloaded")
    assert span.attributes["error.type"] == "503"
    assert span.ended - span.started == 1_000_000_000


def test_what_did_not_end_ends_with_the_rollout():
    """A function that the deadline cut off is an error that ends when the rollout does."""
    pushed = recorded(lambda _context: push(IntermediateStepType.FUNCTION_START, UUID="f", name="slow"))
    (span,) = inner_spans(ended(ended=pushed[-1].event_timestamp + 5), pushed)
    assert (span.name, span.error) == ("slow", "it had not ended when the rollout did")
    assert span.ended - span.started >= 4_900_000_000


def test_a_reward_is_an_event_and_attributes():
    """Back ends read one or the other."""
    span = root(1, Evaluation("reward", 0.5, {"why": "half"}), epoch=3)
    assert span.attributes["gen_ai.evaluation.score.value"] == span.attributes["nat.evaluation.reward"] == 0.5
    assert span.attributes["gen_ai.evaluation.explanation"] == '{"why":"half"}'
    assert [(e.name, e.attributes["gen_ai.evaluation.name"]) for e in span.events] == [
        ("gen_ai.evaluation.result", "reward")
    ]
    assert (span.parent_id, span.attributes["epoch"]) == (None, 3)


def test_what_is_no_number_is_a_label():
    """An evaluator may give words, or nothing; several evaluators are told apart by their names."""
    span = root(1, Evaluation("tone", "polite"), Evaluation("none", None), Evaluation("match", score=True))
    values = [dict(event.attributes) for event in span.events]
    assert values[0] == {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.label": "polite"}
    assert values[1] == {"gen_ai.evaluation.name": "none"}
    assert span.attributes["nat.evaluation.match"] == 1.0
    assert "gen_ai.evaluation.name" not in span.attributes


def test_secrets_and_lone_surrogates_leave_no_span():
    """Texts are redacted as everywhere, and are valid UTF-8."""
    known_secrets.remember(["hunter2hunter2"])
    made = call([user("key hunter2hunter2 \ud800")], {"role": "assistant", "content": "hunter2hunter2"})
    shown = str(inner_spans(ended(), steps(made))) + str(rollout_span(ended(given={"k": "hunter2hunter2"}), {}, ()))
    assert "hunter2" not in shown
    assert shown.encode()


def test_content_can_be_left_out():
    """Names, times and numbers stay; messages, inputs, outputs and errors' texts do not."""
    made = call([user("a private question")], "a private answer", tools=[{"function": {"name": "private"}}])
    spans = [*inner_spans(ended(), steps(made)), rollout_span(ended(given="private", error="private"), {}, ())]
    bare = [span.without_content() for span in spans]
    assert "private" not in str(bare)
    assert bare[0].attributes["gen_ai.request.model"] == "tiny"


def test_steps_of_any_shape_make_spans():
    """A plug-in's values may be no JSON at all."""

    def play(_context):
        odd = StreamEventData(input={1: object(), "path": Path()}, output=asyncio.Queue)
        push(IntermediateStepType.TOOL_START, UUID="t", name="odd", data=odd)
        push(IntermediateStepType.TOOL_END, UUID="t", name="odd", data=odd)

    (span,) = inner_spans(ended(), recorded(play))
    assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert "object object" in span.attributes["input.value"]


@pytest.mark.parametrize("uuid", ["remote", "", "5e1f9f2a-8a55-4a0b-9b9c-0f7d6a5d4c3b"])
def test_any_text_is_a_step_s_id(uuid):
    """Ids of spans have 64 bits, are not 0, and differ between rollouts."""
    pushed = recorded(lambda _context: push(IntermediateStepType.FUNCTION_START, UUID=uuid, name="f"))
    one, other = (inner_spans(ended(trace_id=trace), pushed)[0].span_id for trace in (1, 2))
    assert 0 < one < 2**64
    assert one != other


@pytest.mark.parametrize(
    "odd",
    [
        {"UUID": "\ud800"},
        {"name": "\ud800"},
        {"data": StreamEventData(input={"\ud800": "\ud800"}, output=b"\xff")},
        {"event_timestamp": float("inf")},
        {"event_timestamp": float("nan"), "span_event_timestamp": -1.0},
        {"event_timestamp": 1e300, "span_event_timestamp": 1e13},
    ],
)
def test_a_step_of_any_shape_can_be_encoded(odd, tmp_path):
    """One span that cannot would take all spans of its request with it."""
    known = {"name": "t", "UUID": "u", "event_timestamp": 2.0, "span_event_timestamp": 1.0}
    payload = IntermediateStepPayload(event_type=IntermediateStepType.TOOL_END, **known | odd)
    (step, *_) = steps(call([user("q")], "a"))
    spans = inner_spans(ended(), [step.model_copy(update={"payload": payload})])
    spans.append(rollout_span(ended(workflow="\ud800"), {}, [Evaluation("\ud800", 1.0)]))
    assert [span.started < 2**63 and span.ended >= span.started >= 0 for span in spans] == [True, True]
    assert encode_spans(readable(spans, {})).SerializeToString()
    SpanFile(tmp_path / "spans", "p", max_bytes=None, max_files=1, begin_anew=True).send(spans)
    assert (tmp_path / "spans").read_text("utf-8").count("\n") == 2

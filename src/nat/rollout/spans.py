"""A finished rollout as OpenTelemetry's spans: one for the rollout, and one for each function, tool and LLM call in it.

Import this module only where the extra `telemetry` is installed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from nat.capture.steps import failed_calls
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepCategory, IntermediateStepState
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME
from nat.rollout.rollout import Rollout
from nat.telemetry import names
from nat.telemetry.attributes import Attributes, Evaluation, Value, call_attributes, content, scores, text

_LATEST_S = 9e9


@dataclass(frozen=True, slots=True)
class RolloutSpan:
    """The span of a whole rollout, which waits for what becomes known after its end."""

    span: Span
    ended: int
    """Nanoseconds since 1970."""

    def end(self, facts: Mapping[str, Value], evaluations: Iterable[Evaluation]) -> None:
        """End the span, which sends it."""
        self.span.set_attributes({**facts, **scores(evaluations)})
        self.span.end(self.ended)


def rollout_spans(tracer: Tracer, rollout: Rollout, given: Any, *, workflow: str) -> RolloutSpan:
    """Send the spans inside the rollout; its own is the caller's to end."""
    began = rollout.started_at.timestamp()
    ended = nanoseconds(began + rollout.seconds)
    root = tracer.start_span(
        f"invoke_workflow {text(workflow)}",
        Context(),
        attributes={
            names.SPAN_KIND: "AGENT",
            **content(names.INPUT, names.INPUT_TYPE, given),
            **content(names.OUTPUT, names.OUTPUT_TYPE, rollout.output),
            names.EXAMPLE_ID: text(rollout.item_id),
            names.GENERATION: rollout.generation,
            **({} if rollout.seed is None else {names.SEED: rollout.seed}),
        },
        start_time=nanoseconds(began),
    )
    if rollout.error is not None:
        root.set_status(Status(StatusCode.ERROR, text(str(rollout.error))))
    outer = set_span_in_context(root, Context())
    contexts: dict[str, Context] = {}
    inside = list(filter(_is_inside, rollout.steps))
    offered = (tool for step in rollout.steps for tool in (step.llm_call and step.llm_call.tools) or ())
    tools = {str((tool.get("function") or {}).get("name")) for tool in offered}
    ends = {step.UUID: step for step in inside if step.event_state is IntermediateStepState.END}
    for first in inside:
        if first.UUID in contexts:
            continue
        end = ends.get(first.UUID)
        started = nanoseconds((end or first).span_event_timestamp or first.event_timestamp)
        span = _started(tracer, first, end or first, contexts.get(first.parent_id, outer), tools, started)
        contexts[first.UUID] = set_span_in_context(span, Context())
        if end is None:
            span.set_status(Status(StatusCode.ERROR, "it had not ended when the rollout did"))
        span.end(max(started, ended if end is None else nanoseconds(end.event_timestamp)))
    return RolloutSpan(root, ended)


def _started(
    tracer: Tracer,
    first: IntermediateStep,
    end: IntermediateStep,
    parent: Context,
    tools: set[str],
    started: int,
) -> Span:
    name, attributes = _described(first, end, tools)
    is_call = attributes[names.SPAN_KIND] == "LLM"
    span = tracer.start_span(
        name,
        parent,
        kind=SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
        attributes={names.FUNCTION_NAME: text(end.function_ancestry.function_name), **attributes},
        start_time=started,
    )
    if failed := failed_calls([end]):
        span.set_status(Status(StatusCode.ERROR, text(f"{failed[0].status or 'no answer'}: {failed[0].error}")))
    return span


def _described(first: IntermediateStep, end: IntermediateStep, tools: set[str]) -> tuple[str, Attributes]:
    """Name and attributes of a step's span."""
    name = text(end.name or str(end.event_category).lower())
    if end.event_category is IntermediateStepCategory.LLM:
        return f"chat {name}", call_attributes(end)
    if failed := failed_calls([end]):
        model = text(failed[0].model)
        return f"chat {model}", {names.SPAN_KIND: "LLM", names.LLM_MODEL: model}
    given = None if first.data is None else first.data.input
    output = None if end.data is None else end.data.output
    found = content(names.INPUT, names.INPUT_TYPE, given) | content(names.OUTPUT, names.OUTPUT_TYPE, output)
    if end.event_category is not IntermediateStepCategory.TOOL and name not in tools:
        return name, found | {names.SPAN_KIND: "CHAIN"}
    arguments: Attributes = {} if given is None else {names.TOOL_ARGUMENTS: text(given)}
    return f"execute_tool {name}", found | {names.SPAN_KIND: "TOOL", names.TOOL_NAME: name} | arguments


def _is_inside(step: IntermediateStep) -> bool:
    """False for the workflow, whose span is the rollout's, and for single events, such as rewards of steps."""
    if step.event_category in (IntermediateStepCategory.WORKFLOW, IntermediateStepCategory.CUSTOM):
        return False
    is_workflow = step.event_category is IntermediateStepCategory.FUNCTION and step.name == WORKFLOW_COMPONENT_NAME
    return not is_workflow and step.event_state is not IntermediateStepState.CHUNK


def nanoseconds(seconds: float) -> int:
    """A time since 1970 as spans have it; one that their 64 bits cannot hold is the nearest one, NaN 1970."""
    return int(min(max(0.0, seconds), _LATEST_S) * 1e9)

"""The steps of a rollout as spans: one for the rollout, and one for each function, tool and LLM call inside it. Pure.

The spans inside are complete when the rollout ends. That of the rollout waits for the reward, which it carries.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nat.capture.steps import failed_calls
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepCategory,
    IntermediateStepState,
)
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME
from nat.data_models.score import is_score
from nat.telemetry import names
from nat.telemetry.llm_spans import Messages, call_attributes
from nat.telemetry.span import Attributes, Span, SpanEvent, Value, content, nanoseconds, span_id, text

_ROOT = "rollout"
_NOT_ENDED = "it had not ended when the rollout did"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluator says of a rollout."""

    name: str
    score: Any
    """A number, or whatever else the evaluator gives; None for none."""
    why: Any = None


@dataclass(frozen=True, slots=True)
class EndedRollout:
    """A rollout that has ended, without its steps."""

    trace_id: int
    workflow: str
    started: float
    """Seconds since 1970; likewise `ended`."""
    ended: float
    given: Any
    output: Any
    error: str | None
    facts: Mapping[str, Value]
    """Attributes that are known when it ends."""


def rollout_span(rollout: EndedRollout, facts: Mapping[str, Value], evaluations: Iterable[Evaluation]) -> Span:
    """The span of the whole rollout, with what became known of it after its end."""
    ended, judged = nanoseconds(rollout.ended), list(evaluations)
    attributes: Attributes = {
        names.OPERATION: names.INVOKE_WORKFLOW,
        names.WORKFLOW_NAME: rollout.workflow,
        names.SPAN_KIND: names.KIND_AGENT,
        **content(names.INPUT, names.INPUT_TYPE, rollout.given),
        **content(names.OUTPUT, names.OUTPUT_TYPE, rollout.output),
        **rollout.facts,
        **facts,
    }
    attributes |= {f"{names.SCORE_OF}{each.name}": float(each.score) for each in judged if is_score(each.score)}
    if len(judged) == 1:
        attributes |= _evaluation(judged[0])
    return Span(
        rollout.trace_id,
        span_id(rollout.trace_id, _ROOT),
        None,
        f"{names.INVOKE_WORKFLOW} {rollout.workflow}",
        nanoseconds(rollout.started),
        ended,
        attributes,
        tuple(SpanEvent(names.EVALUATION, ended, _evaluation(each)) for each in judged),
        None if rollout.error is None else text(rollout.error),
    ).encodable()


def _evaluation(judged: Evaluation) -> Attributes:
    why: Attributes = {} if judged.why is None else {names.EVALUATION_WHY: text(judged.why)}
    score: Attributes = {}
    if is_score(judged.score):
        score = {names.EVALUATION_SCORE: float(judged.score)}
    elif judged.score is not None:
        score = {names.EVALUATION_LABEL: text(judged.score)}
    return {names.EVALUATION_NAME: judged.name, **score, **why}


def inner_spans(rollout: EndedRollout, steps: Sequence[IntermediateStep]) -> list[Span]:
    """The spans inside the rollout, in the order in which they ended; those that did not end come last."""
    begun = {step.UUID: step for step in steps if step.event_state is IntermediateStepState.START}
    inside = {step.UUID for step in steps if _is_inside(step)}
    ends = [step for step in steps if step.event_state is IntermediateStepState.END and step.UUID in inside]
    ended = {step.UUID for step in ends}
    place = _Place(rollout, inside, set(_offered(steps)), Messages())
    spans = [place.span(step, begun.get(step.UUID, step)) for step in ends]
    return spans + [place.span(step, step, ended=False) for uuid, step in begun.items() if uuid in inside - ended]


def num_inside(steps: Iterable[IntermediateStep]) -> int:
    """How many spans the steps make."""
    return len({step.UUID for step in steps if _is_inside(step)})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where spans belong."""

    rollout: EndedRollout
    inside: set[str]
    """UUIDs of the spans' steps; anything else belongs to the rollout itself."""
    tools: set[str]
    """Names of the tools that the model was offered."""
    messages: Messages

    def span(self, end: IntermediateStep, start: IntermediateStep, *, ended: bool = True) -> Span:
        trace = self.rollout.trace_id
        name, attributes = self._described(end, start)
        began = end.span_event_timestamp or start.event_timestamp
        error = None if ended else _NOT_ENDED
        if failed := failed_calls([end]):
            error = text(f"{failed[0].status or 'no answer'}: {failed[0].error}")
        parent = end.parent_id if end.parent_id in self.inside else _ROOT
        return Span(
            trace,
            span_id(trace, end.UUID),
            span_id(trace, parent),
            name,
            nanoseconds(began),
            nanoseconds(max(began, end.event_timestamp if ended else self.rollout.ended)),
            attributes,
            error=error,
            remote=attributes[names.SPAN_KIND] == names.KIND_LLM,
        ).encodable()

    def _described(self, end: IntermediateStep, start: IntermediateStep) -> tuple[str, Attributes]:
        """Name and attributes of a step's span."""
        name = end.name or str(end.event_category).lower()
        found: Attributes = {names.FUNCTION_NAME: end.function_ancestry.function_name}
        if end.event_category is IntermediateStepCategory.LLM:
            return f"{names.CHAT} {name}", found | call_attributes(end, self.messages)
        if failed := failed_calls([end]):
            model, status = failed[0].model, failed[0].status
            kind = {names.OPERATION: names.CHAT, names.REQUEST_MODEL: model, names.SPAN_KIND: names.KIND_LLM}
            return f"{names.CHAT} {model}", {**found, **kind, names.ERROR_TYPE: str(status or "connection")}
        given = None if start.data is None else start.data.input
        output = None if end.data is None else end.data.output
        found |= content(names.INPUT, names.INPUT_TYPE, given) | content(names.OUTPUT, names.OUTPUT_TYPE, output)
        if end.event_category is IntermediateStepCategory.TOOL or name in self.tools:
            return f"{names.EXECUTE_TOOL} {name}", found | _tool(name, given, output)
        return name, found | {names.SPAN_KIND: names.KIND_CHAIN}


def _tool(name: str, given: Any, output: Any) -> Attributes:
    values = {names.TOOL_ARGUMENTS: given, names.OI_TOOL_ARGUMENTS: given, names.TOOL_RESULT: output}
    known = {key: text(value) for key, value in values.items() if value is not None}
    kind = {names.OPERATION: names.EXECUTE_TOOL, names.SPAN_KIND: names.KIND_TOOL}
    return {**kind, names.TOOL_NAME: name, names.OI_TOOL_NAME: name, **known}


def _is_inside(step: IntermediateStep) -> bool:
    """False for the workflow, whose span is the rollout's, and for single events, such as rewards of steps."""
    if step.event_category in (IntermediateStepCategory.WORKFLOW, IntermediateStepCategory.CUSTOM):
        return False
    is_workflow = step.event_category is IntermediateStepCategory.FUNCTION and step.name == WORKFLOW_COMPONENT_NAME
    return not is_workflow and step.event_state is not IntermediateStepState.CHUNK


def _offered(steps: Iterable[IntermediateStep]) -> Iterator[str]:
    for step in steps:
        if (call := step.llm_call) is not None:
            for tool in call.tools or ():
                yield str((tool.get("function") or {}).get("name"))

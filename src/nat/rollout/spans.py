"""A finished rollout as OpenTelemetry's spans: one for the rollout, and one for each function, tool and LLM call in it.

The names of attributes are OpenInference's, which Phoenix, Langfuse and Weave all show; `nat.*` are ours and the
toolkit's. Import this module only where the extra `telemetry` is installed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from pydantic_core import to_json

from nat.capture.steps import failed_calls
from nat.data_models.evaluate_runtime import Rollout
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepCategory, IntermediateStepState
from nat.data_models.invocation_node import WORKFLOW_COMPONENT_NAME
from nat.data_models.llm_call import LLMCall
from nat.data_models.score import is_score
from nat.secrets import redact
from nat.wire.json import without_surrogates

Attributes = dict[str, str | bool | int | float]

_KIND, _MODEL = "openinference.span.kind", "llm.model_name"
_LATEST_S = 9e9
_MOST_MESSAGES = 16
"""Messages of a request that a span repeats one by one, the last ones: each is two attributes."""


def send_spans(
    tracer: Tracer,
    rollout: Rollout,
    given: Any,
    *,
    workflow: str,
    facts: Mapping[str, Any],
    scores: Iterable[tuple[str, Any, Any]],
) -> None:
    """Send the spans of a rollout of this input; `scores` have a name, a number or anything else, and why."""
    began = rollout.started_at.timestamp()
    ended = _nanoseconds(began + rollout.seconds)
    found: dict[str, Any] = {"nat.finetune.example_id": rollout.item_id, "nat.finetune.generation": rollout.generation}
    found |= {"nat.finetune.seed": rollout.seed, **facts}
    for name, score, why in scores:
        found |= {f"nat.evaluation.{name}": float(score) if is_score(score) else score}
        found |= {f"nat.evaluation.{name}.reasoning": None if why is None else _text(why)}
    root = tracer.start_span(
        f"invoke_workflow {_text(workflow)}",
        Context(),
        attributes={_KIND: "AGENT", **_content("input", given), **_content("output", rollout.output), **_known(found)},
        start_time=_nanoseconds(began),
    )
    if rollout.error is not None:
        root.set_status(Status(StatusCode.ERROR, _text(str(rollout.error))))
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
        last = end or first
        started = _nanoseconds(last.span_event_timestamp or first.event_timestamp)
        name, attributes = _described(first, last, tools)
        span = tracer.start_span(
            name,
            contexts.get(first.parent_id, outer),
            kind=SpanKind.CLIENT if attributes[_KIND] == "LLM" else SpanKind.INTERNAL,
            attributes={"nat.function.name": _text(last.function_ancestry.function_name), **attributes},
            start_time=started,
        )
        contexts[first.UUID] = set_span_in_context(span, Context())
        if failed := failed_calls([last]):
            span.set_status(Status(StatusCode.ERROR, _text(f"{failed[0].status or 'no answer'}: {failed[0].error}")))
        if end is None:
            span.set_status(Status(StatusCode.ERROR, "it had not ended when the rollout did"))
        span.end(max(started, ended if end is None else _nanoseconds(end.event_timestamp)))
    root.end(ended)


def _described(first: IntermediateStep, end: IntermediateStep, tools: set[str]) -> tuple[str, Attributes]:
    """Name and attributes of a step's span."""
    name = _text(end.name or str(end.event_category).lower())
    given = None if first.data is None else first.data.input
    found = _content("input", given) | _content("output", None if end.data is None else end.data.output)
    if end.event_category is IntermediateStepCategory.LLM:
        return f"chat {name}", _call(end, found)
    if failed := failed_calls([end]):
        model = _text(failed[0].model)
        return f"chat {model}", {_KIND: "LLM", _MODEL: model}
    if end.event_category is not IntermediateStepCategory.TOOL and name not in tools:
        return name, found | {_KIND: "CHAIN"}
    return f"execute_tool {name}", found | {_KIND: "TOOL"} | _known({"tool.name": name, "tool.parameters": given})


def _is_inside(step: IntermediateStep) -> bool:
    """False for the workflow, whose span is the rollout's, and for single events, such as rewards of steps."""
    if step.event_category in (IntermediateStepCategory.WORKFLOW, IntermediateStepCategory.CUSTOM):
        return False
    is_workflow = step.event_category is IntermediateStepCategory.FUNCTION and step.name == WORKFLOW_COMPONENT_NAME
    return not is_workflow and step.event_state is not IntermediateStepState.CHUNK


def _call(step: IntermediateStep, reported: Attributes) -> Attributes:
    """The attributes of an LLM_END; those of the conversation only if the call was captured."""
    call, usage = step.llm_call, step.usage_info
    found: Attributes = {
        _KIND: "LLM",
        _MODEL: _text(step.name or "unknown" if call is None else call.model),
        "llm.provider": "openai",  # what the convention says of servers with OpenAI's API whose maker is not known
    }
    if usage is not None and usage.token_usage.total_tokens:
        tokens = usage.token_usage
        found |= {
            "llm.token_count.prompt": tokens.prompt_tokens,
            "llm.token_count.prompt_details.cache_read": tokens.cached_tokens,
            "llm.token_count.completion": tokens.completion_tokens,
            "llm.token_count.completion_details.reasoning": tokens.reasoning_tokens,
            "llm.token_count.total": tokens.total_tokens,
        }
    return found | (reported if call is None else _conversation(call))


def _conversation(call: LLMCall) -> Attributes:
    known = {
        "llm.finish_reason": call.finish_reason or None,
        "nat.llm.name": call.llm_name or None,
        "nat.finetune.weight_version": call.policy_version or None,
        **{f"llm.tools.{number}.tool.json_schema": tool for number, tool in enumerate(call.tools or ())},
        **dict(_messages("llm.input_messages", call.messages)),
        **dict(_messages("llm.output_messages", [call.message])),
    }
    given = call.messages[-1].get("content") if call.messages else None
    both = _content("input", given) | _content("output", call.message.get("content") or "")
    return {"llm.invocation_parameters": _text({"temperature": call.temperature})} | both | _known(known)


def _messages(prefix: str, messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    first = max(0, len(messages) - _MOST_MESSAGES)
    for number, message in enumerate(messages[first:], first):
        place = f"{prefix}.{number}.message"
        yield from ((f"{place}.{name}", message.get(name)) for name in ("role", "content", "tool_call_id"))
        for at, call in enumerate(message.get("tool_calls") or ()):
            function, own = call.get("function") or {}, f"{place}.tool_calls.{at}.tool_call"
            yield from ((f"{own}.id", call.get("id")), (f"{own}.function.name", function.get("name")))
            yield f"{own}.function.arguments", function.get("arguments")


def _known(values: Mapping[str, Any]) -> Attributes:
    """Those that are not None; numbers as they are, all else as text."""
    known = {_text(name): value for name, value in values.items() if value is not None}
    return {name: value if isinstance(value, int | float) else _text(value) for name, value in known.items()}


def _content(side: str, value: Any) -> Attributes:
    """OpenInference's pair of a value and its type; empty for no value."""
    if value is None:
        return {}
    kind = "text/plain" if isinstance(value, str) else "application/json"
    return {f"{side}.value": _text(value), f"{side}.mime_type": kind}


def _text(value: Any) -> str:
    """A text unchanged, anything else as JSON, which has text for what it does not know; without secrets."""
    if isinstance(value, str):
        return redact(without_surrogates(value))
    try:
        known = to_json(value, fallback=repr, inf_nan_mode="constants")
    except (ValueError, TypeError):  # lone surrogates, bytes that are no text, or keys that are no text
        known = to_json(without_surrogates(value), fallback=repr, inf_nan_mode="constants", bytes_mode="base64")
    return redact(known.decode())


def _nanoseconds(seconds: float) -> int:
    """A time since 1970 as spans have it; one that their 64 bits cannot hold is the nearest one, NaN 1970."""
    return int(min(max(0.0, seconds), _LATEST_S) * 1e9)

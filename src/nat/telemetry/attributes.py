"""The attributes of spans: texts without secrets, an LLM call, evaluations. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.llm_call import LLMCall
from nat.data_models.score import is_score
from nat.secrets import redact
from nat.telemetry import names
from nat.wire.json import without_surrogates

Value = str | bool | int | float
Attributes = dict[str, Value]

_PROVIDER = "openai"
"""What the convention says of servers with OpenAI's API whose maker is not known."""
_MOST_MESSAGES = 16
"""Messages of a request that a span repeats one by one, the last ones: each is two attributes."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluator says of a rollout."""

    name: str
    score: Any
    """A number, or whatever else the evaluator gives; None for none."""
    why: Any = None


def text(value: Any) -> str:
    """A text unchanged, anything else as JSON, which has text for what it does not know; without secrets."""
    if isinstance(value, str):
        return redact(without_surrogates(value))
    try:
        known = to_json(value, fallback=repr, inf_nan_mode="constants")
    except (ValueError, TypeError):  # lone surrogates, bytes that are no text, or keys that are no text
        known = to_json(without_surrogates(value), fallback=repr, inf_nan_mode="constants", bytes_mode="base64")
    return redact(known.decode())


def content(name: str, type_name: str, value: Any) -> Attributes:
    """OpenInference's pair of a value and its type; empty for no value."""
    if value is None:
        return {}
    return {name: text(value), type_name: "text/plain" if isinstance(value, str) else "application/json"}


def scores(evaluations: Iterable[Evaluation]) -> Attributes:
    """The score of each evaluator, and why."""
    found: Attributes = {}
    for judged in evaluations:
        name = names.SCORE_OF + text(judged.name)
        if judged.score is not None:
            found[name] = float(judged.score) if is_score(judged.score) else text(judged.score)
        if judged.why is not None:
            found[name + names.REASON] = text(judged.why)
    return found


def call_attributes(step: IntermediateStep) -> Attributes:
    """The attributes of an LLM_END; those of the conversation only if the call was captured."""
    call, usage = step.llm_call, step.usage_info
    found: Attributes = {
        names.SPAN_KIND: "LLM",
        names.LLM_MODEL: text(step.name or "unknown" if call is None else call.model),
        names.LLM_PROVIDER: _PROVIDER,
    }
    if usage is not None and usage.token_usage.total_tokens:
        tokens = usage.token_usage
        found |= {
            names.LLM_PROMPT_TOKENS: tokens.prompt_tokens,
            names.LLM_CACHED_TOKENS: tokens.cached_tokens,
            names.LLM_COMPLETION_TOKENS: tokens.completion_tokens,
            names.LLM_REASONING_TOKENS: tokens.reasoning_tokens,
            names.LLM_TOTAL_TOKENS: tokens.total_tokens,
        }
    if call is not None:
        return found | _recorded(call)
    data = step.data
    return found if data is None else found | _values(data.input, data.output)


def _values(given: Any, answer: Any) -> Attributes:
    return content(names.INPUT, names.INPUT_TYPE, given) | content(names.OUTPUT, names.OUTPUT_TYPE, answer)


def _recorded(call: LLMCall) -> Attributes:
    found: Attributes = {
        names.LLM_PARAMETERS: text({"temperature": call.temperature}),
        **_messages(names.LLM_INPUT, call.messages),
        **_messages(names.LLM_OUTPUT, [call.message]),
        **_values(call.messages[-1].get("content") if call.messages else None, call.message.get("content") or ""),
        **{f"{names.LLM_TOOLS}.{n}.tool.json_schema": text(tool) for n, tool in enumerate(call.tools or ())},
    }
    known = {
        names.LLM_FINISH_REASON: call.finish_reason,
        names.LLM_NAME: call.llm_name,
        names.WEIGHT_VERSION: call.policy_version,
    }
    return found | {name: text(value) for name, value in known.items() if value}


def _messages(prefix: str, messages: Sequence[Mapping[str, Any]]) -> Attributes:
    first = max(0, len(messages) - _MOST_MESSAGES)
    return {
        f"{prefix}.{number}.message.{name}": text(value)
        for number, message in enumerate(messages[first:], first)
        for name, value in _fields(message)
        if value is not None
    }


def _fields(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, message.get(name)) for name in ("role", "content", "tool_call_id"))
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        place = f"tool_calls.{number}.tool_call"
        yield from ((f"{place}.id", call.get("id")), (f"{place}.function.name", function.get("name")))
        yield f"{place}.function.arguments", function.get("arguments")

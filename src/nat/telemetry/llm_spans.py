"""The attributes of an LLM call, in both conventions. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.llm_call import LLMCall
from nat.telemetry import names
from nat.telemetry.span import Attributes, content, json, text

_PROVIDER = "openai"
"""What the conventions say of servers with OpenAI's API whose maker is not known."""
_MOST_FLAT = 16
"""Messages of a request that OpenInference's names repeat one by one, the last ones: each is two attributes."""


class Messages:
    """The messages of a rollout as text; each is converted once, since its calls share their history."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, list[tuple[str, str]], Any]] = {}

    def joined(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """A JSON list in OpenTelemetry's shape."""
        return f"[{','.join(self._of(message)[0] for message in messages)}]"

    def flat(self, prefix: str, messages: Sequence[Mapping[str, Any]]) -> Attributes:
        """As OpenInference writes them: one attribute for each text."""
        first = max(0, len(messages) - _MOST_FLAT)
        return {
            f"{prefix}.{number}.message.{name}": value
            for number, message in enumerate(messages[first:], first)
            for name, value in self._of(message)[1]
        }

    def _of(self, message: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]], Any]:
        found = self._known.get(id(message))
        if found is None:
            texts = [(name, text(value)) for name, value in _fields(message) if value is not None]
            found = json(_parts(message)), texts, message  # the message stays, and with it its id
            self._known[id(message)] = found
        return found


def call_attributes(step: IntermediateStep, messages: Messages) -> Attributes:
    """The attributes of an LLM_END; those of the conversation only if the call was captured."""
    call, usage = step.llm_call, step.usage_info
    model = step.name or "unknown" if call is None else call.model
    found: Attributes = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: _PROVIDER,
        names.REQUEST_MODEL: model,
        names.SPAN_KIND: names.KIND_LLM,
        names.LLM_MODEL: model,
        names.LLM_PROVIDER: _PROVIDER,
    }
    if usage is not None and usage.token_usage.total_tokens:
        tokens = usage.token_usage
        found |= {
            names.INPUT_TOKENS: tokens.prompt_tokens,
            names.OUTPUT_TOKENS: tokens.completion_tokens,
            names.CACHED_TOKENS: tokens.cached_tokens,
            names.REASONING_TOKENS: tokens.reasoning_tokens,
            names.LLM_PROMPT_TOKENS: tokens.prompt_tokens,
            names.LLM_COMPLETION_TOKENS: tokens.completion_tokens,
            names.LLM_TOTAL_TOKENS: tokens.total_tokens,
        }
    if call is not None:
        return found | _recorded(call, messages)
    data = step.data
    return found if data is None else found | _values(data.input, data.output)


def _values(given: Any, answer: Any) -> Attributes:
    return content(names.INPUT, names.INPUT_TYPE, given) | content(names.OUTPUT, names.OUTPUT_TYPE, answer)


def _recorded(call: LLMCall, messages: Messages) -> Attributes:
    answer = [call.message | {"finish_reason": call.finish_reason or "unknown"}]
    found: Attributes = {
        names.REQUEST_MODEL: call.requested_model or call.model,
        names.RESPONSE_MODEL: call.model,
        names.REQUEST_TEMPERATURE: call.temperature,
        names.INPUT_MESSAGES: messages.joined(call.messages),
        names.OUTPUT_MESSAGES: messages.joined(answer),
        **messages.flat(names.LLM_INPUT, call.messages),
        **messages.flat(names.LLM_OUTPUT, answer),
        **_values(call.messages[-1].get("content") if call.messages else None, call.message.get("content") or ""),
    }
    if call.finish_reason:
        found[names.FINISH_REASONS] = (call.finish_reason,)
    if call.llm_name:
        found[names.LLM_NAME] = call.llm_name
    if call.policy_version:
        found[names.WEIGHT_VERSION] = call.policy_version
    if call.tools:
        found[names.TOOL_DEFINITIONS] = json([tool.get("function", tool) for tool in call.tools])
        found |= {f"{names.LLM_TOOLS}.{n}.tool.json_schema": json(tool) for n, tool in enumerate(call.tools)}
    return found


def _parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of OpenAI's API in OpenTelemetry's shape."""
    said = message.get("content")
    if message.get("role") == "tool":
        answer = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": said}
        return {"role": "tool", "parts": [answer]}
    thought = message.get("reasoning_content") or message.get("reasoning")
    parts = [{"type": "reasoning", "content": thought}] if thought else []
    if isinstance(said, str):
        parts += [{"type": "text", "content": said}] if said else []
    else:
        parts += [{"type": "text", "content": p["text"]} if p.get("type") == "text" else p for p in said or ()]
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        asked = {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
        parts.append({"type": "tool_call", **asked})
    ended = {key: message[key] for key in ("finish_reason",) if key in message}
    return {"role": message.get("role"), "parts": parts, **ended}


def _fields(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from ((name, message.get(name)) for name in ("role", "content", "tool_call_id"))
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        place = f"tool_calls.{number}.tool_call"
        yield from ((f"{place}.id", call.get("id")), (f"{place}.function.name", function.get("name")))
        yield f"{place}.function.arguments", function.get("arguments")

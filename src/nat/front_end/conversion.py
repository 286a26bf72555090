"""Convert requests to workflow inputs, and outputs to responses. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json, to_jsonable_python

from nat.builder.conversion import has_type
from nat.builder.function import Function
from nat.data_models.api_server import ChatResponseChunk
from nat.data_models.intermediate_step import IntermediateStep
from nat.data_models.llm_usage import LLMUsage, usage_of_steps
from nat.errors import findings_of
from nat.http.errors import ApiError
from nat.wire.json import without_surrogates

INPUT_KEY = "input_message"
"""Key of a rollout's input, independent of the workflow's argument names."""


def rollout_input(body: object) -> Any:
    """The unchanged input of a rollout whose request has options."""
    if not isinstance(body, dict) or INPUT_KEY not in body:
        raise ApiError(f"a rollout sends its input as {INPUT_KEY}", param=INPUT_KEY)
    return body[INPUT_KEY]


def workflow_input(body: object, function: Function) -> Any:
    """The arguments of the workflow by name, or any input as `input_message`, or as the body itself.

    Raises:
        ApiError: they do not fit.

    """
    fields = function.input_schema.model_fields
    value = (
        body[INPUT_KEY] if isinstance(body, dict) and list(body) == [INPUT_KEY] and INPUT_KEY not in fields else body
    )
    _check_type(value, function)
    return value


def chat_input(body: object, function: Function) -> Any:
    """The whole request for a workflow with an argument `messages`; for any other the text of the last user message.

    Raises:
        ApiError: the body is no chat request, or does not fit.

    """
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise ApiError("a chat needs `messages`, a list of objects with role and content", param="messages")
    fields = function.input_schema.model_fields
    if "messages" in fields:
        value = {name: body[name] for name in fields if name in body}
        _check(value, function)
        return value
    from_user = [message for message in messages if message.get("role") == "user"]
    if not from_user:
        raise ApiError("there is no user message", param="messages")
    text = _message_text(from_user[-1])
    _check_type(text, function)
    return text


def _check_type(value: Any, function: Function) -> None:
    """Refuse invalid input before the workflow runs, as the client's error."""
    if has_type(value, function.input_type):
        return
    if isinstance(value, dict):
        _check(value, function)
        return
    try:
        function.convert(value, function.input_type)
    except (TypeError, ValueError) as error:
        raise ApiError(f"the input does not fit the workflow: {error}", status=422) from error


def _check(value: Mapping[str, Any], function: Function) -> None:
    try:
        function.input_schema.model_validate(value)
    except ValidationError as error:
        findings = findings_of(error)
        seen = "; ".join(map(str, findings))
        wanted = ", ".join(function.input_schema.model_fields)
        raise ApiError(
            f"the input does not fit the workflow, which takes {wanted}: {seen}", param=findings[0].place, status=422
        ) from error


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    if not texts:
        raise ApiError("the last user message has no text", param="messages")
    return "\n".join(str(text) for text in texts)


def plain(value: Any) -> Any:
    """The value as JSON; values that JSON does not know become text."""
    return from_json(to_json(without_surrogates(value), fallback=repr, inf_nan_mode="strings"))


def exactly(output: Any) -> Any:
    """The output as evaluators see it in-process: a record becomes its JSON text."""
    if isinstance(output, BaseModel):
        return output.model_dump_json(indent=2)
    return to_jsonable_python(output, fallback=repr)


def wrapped(value: Any) -> dict[str, Any]:
    """The output if it is an object, else an object with the output as `value`."""
    known = plain(value)
    return known if isinstance(known, dict) else {"value": known}


def completion(output: Any, *, answer_id: str, created: int, model: str, usage: Mapping[str, int]) -> dict[str, Any]:
    """An output as a chat completion; one that is a chat completion already stays unchanged."""
    known = plain(output)
    if isinstance(known, dict) and "choices" in known:
        return known
    message = {"role": "assistant", "content": _output_text(known)}
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": dict(usage),
    }


def chunk(delta: Mapping[str, Any], *, answer_id: str, created: int, model: str, end: bool = False) -> dict[str, Any]:
    """One event of a streamed chat."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": "stop" if end else None}
    return {
        "id": answer_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [choice],
    }


def chunk_text(output: Any) -> str:
    """The text that a piece of the output adds."""
    return output.text if isinstance(output, ChatResponseChunk) else _output_text(plain(output))


def usage_of(steps: Iterable[IntermediateStep]) -> dict[str, int]:
    """The sum of the tokens of all LLM calls."""
    total = sum(usage_of_steps(steps).values(), LLMUsage())
    prompt, sampled = int(total.prompt_tokens), int(total.completion_tokens)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _output_text(known: Any) -> str:
    return known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)

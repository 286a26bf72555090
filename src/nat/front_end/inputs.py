"""What a request says → what the workflow is given. Pure."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from nat.builder.conversion import is_a
from nat.builder.function import Function
from nat.errors import findings_of
from nat.front_end.errors import bad_request

INPUT_KEY = "input_message"
"""Under this name a rollout sends its input, whatever the workflow calls it."""


def rollout_input(body: object) -> Any:
    """The input of a rollout with wishes, as it is."""
    if not isinstance(body, dict) or INPUT_KEY not in body:
        raise bad_request(f"a rollout sends its input as {INPUT_KEY}", param=INPUT_KEY)
    return body[INPUT_KEY]


def workflow_input(body: object, function: Function) -> Any:
    """The arguments of the workflow by name, or any input as `input_message`, or as the body itself.

    Raises:
        ServeError: they do not fit.

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
        ServeError: the body is no chat request, or does not fit.

    """
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise bad_request("a chat needs `messages`, a list of objects with role and content", param="messages")
    fields = function.input_schema.model_fields
    if "messages" in fields:
        value = {name: body[name] for name in fields if name in body}
        _check(value, function)
        return value
    said = [message for message in messages if message.get("role") == "user"]
    if not said:
        raise bad_request("there is no user message", param="messages")
    text = _text(said[-1])
    _check_type(text, function)
    return text


def _check_type(value: Any, function: Function) -> None:
    """What the workflow would refuse is the client's to mend, so it is found out before it is played."""
    if is_a(value, function.input_type):
        return
    if isinstance(value, dict):
        _check(value, function)
        return
    try:
        function.convert(value, function.input_type)
    except (TypeError, ValueError) as error:
        raise bad_request(f"the input does not fit the workflow: {error}", status=422) from error


def _check(value: Mapping[str, Any], function: Function) -> None:
    try:
        function.input_schema.model_validate(value)
    except ValidationError as error:
        findings = findings_of(error)
        told = "; ".join(map(str, findings))
        wanted = ", ".join(function.input_schema.model_fields)
        raise bad_request(
            f"the input does not fit the workflow, which takes {wanted}: {told}", param=findings[0].place, status=422
        ) from error


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    if not texts:
        raise bad_request("the last user message has no text", param="messages")
    return "\n".join(str(text) for text in texts)

"""Read a request as it goes over the wire. Pure: no HTTP library, no clock, no context."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from nat.wire.sampling import read_count

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One request for completions; most have one conversation and one choice."""

    fields: dict[str, Any]
    """The request's JSON object."""
    conversations: list[list[Message]]
    """The messages of a chat, or one user message for each prompt of a completion."""
    chat: bool
    """Whether it went to …/chat/completions; else to …/completions."""

    @property
    def model(self) -> str:
        return str(self.fields.get("model", ""))

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        return self.fields.get("tools") or None

    @property
    def choices_per_conversation(self) -> int:
        return read_count(self.fields.get("n")) or 1

    @property
    def prompt_ids(self) -> list[list[int]] | None:
        """The ids of the prompts, if the agent tokenised them itself."""
        if self.chat:
            return None
        prompt = self.fields.get("prompt")
        if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], str):
            return None
        return prompt if isinstance(prompt[0], list) else [prompt]


def is_call_route(path: str) -> bool:
    """Whether what is posted to this path asks for completions."""
    return path.rstrip("/").endswith("/completions")


def read_request(path: str, body: bytes) -> CallRequest | None:
    """The call that was sent to such a path, None if it is malformed."""
    try:
        fields = from_json(body)
    except ValueError:  # the server will say so; there is no call to record
        return None
    if not isinstance(fields, dict):
        return None
    if path.rstrip("/").endswith("/chat/completions"):
        messages = fields.get("messages")
        if not isinstance(messages, list):
            return None
        return CallRequest(fields, [messages], chat=True)
    return CallRequest(fields, [[_as_message(prompt)] for prompt in _prompts(fields.get("prompt"))], chat=False)


def _prompts(prompt: Any) -> list[Any]:
    """A prompt is one text, one list of ids, or a list of either."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        return prompt
    return [prompt]


def _as_message(prompt: Any) -> Message:
    return {"role": "user", "content": prompt}

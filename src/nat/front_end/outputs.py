"""What the workflow gave → what a client reads. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json, to_json, to_jsonable_python

from nat.data_models.api_server import ChatResponseChunk
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepState
from nat.wire.rollout import DATA
from nat.wire.text import without_surrogates

DONE = DATA + b"[DONE]\n\n"


def plain(value: Any) -> Any:
    """The value as JSON has it; what JSON does not know becomes text."""
    return from_json(to_json(without_surrogates(value), fallback=repr, inf_nan_mode="strings"))


def exactly(output: Any) -> Any:
    """What evaluators are to see as they would have seen the output itself: of a record they see the JSON text."""
    if isinstance(output, BaseModel):
        return output.model_dump_json(indent=2)
    return to_jsonable_python(output, fallback=repr)


def wrapped(value: Any) -> dict[str, Any]:
    """An object: the output itself if it is one, else with the output as its `value`."""
    known = plain(value)
    return known if isinstance(known, dict) else {"value": known}


def data_line(content: object) -> bytes:
    """One line of a stream."""
    return DATA + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def completion(output: Any, *, answer_id: str, created: int, model: str, usage: Mapping[str, int]) -> dict[str, Any]:
    """An output as the answer of a chat; one that is such an answer already stays as it is."""
    known = plain(output)
    if isinstance(known, dict) and "choices" in known:
        return known
    message = {"role": "assistant", "content": _text(known)}
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": dict(usage),
    }


def chunk(delta: Mapping[str, Any], *, answer_id: str, created: int, model: str, end: bool = False) -> dict[str, Any]:
    """One event of a chat that is streamed."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": "stop" if end else None}
    return {
        "id": answer_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [choice],
    }


def chunk_text(output: Any) -> str:
    """What a piece of the output adds to the text."""
    return output.text if isinstance(output, ChatResponseChunk) else _text(plain(output))


def usage_of(steps: Iterable[IntermediateStep]) -> dict[str, int]:
    """The tokens of all LLM calls together."""
    used = [step.usage_info.token_usage for step in steps if step.usage_info and step.event_state is _END]
    prompt, sampled = sum(u.prompt_tokens for u in used), sum(u.completion_tokens for u in used)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _text(known: Any) -> str:
    return known if isinstance(known, str) else json.dumps(known, ensure_ascii=False)


_END = IntermediateStepState.END

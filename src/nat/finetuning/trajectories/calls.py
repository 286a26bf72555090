"""Read the LLM calls of a rollout out of its intermediate steps."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType, TraceMetadata
from nat.data_models.llm_call import LLMCall


@dataclass(frozen=True)
class SeenCall:
    """One LLM call and the function that made it."""

    call: LLMCall
    function: str
    """Name of the innermost function that was running; `<workflow>` for the workflow itself."""
    logprobs: Any = None
    """The logprobs in the shape of the wire; None if the server sent none."""
    at: int = 0
    """Place of its LLM_END among the steps of the rollout."""

    @property
    def model(self) -> str:
        """The name to show and count the model by: its key in the YAML, else the name in the request."""
        return self.call.llm_name or self.call.model


def calls_of(steps: Iterable[IntermediateStep]) -> list[SeenCall]:
    """Every LLM call that was answered, in the order of the answers."""
    inputs: dict[str, IntermediateStep] = {}
    seen: list[SeenCall] = []
    for at, step in enumerate(steps):
        if step.event_type == IntermediateStepType.LLM_START:
            inputs[step.UUID] = step
        elif step.event_type == IntermediateStepType.LLM_END:
            call = _captured(step) or _reported(inputs.get(step.UUID), step)
            function = step.function_ancestry.function_name
            logprobs = _wire_logprobs(step) or call.logprobs
            seen.append(SeenCall(call=call, function=function, logprobs=logprobs, at=at))
    return seen


def token_logprobs(logprobs: Any) -> list[float] | None:
    """The numbers alone, from OpenAI's `{"content": [{"logprob": …}]}` or from a list of them."""
    if isinstance(logprobs, dict):
        content = logprobs.get("content")
        if not isinstance(content, list):
            return None
        logprobs = [entry.get("logprob") if isinstance(entry, dict) else None for entry in content]
    if not isinstance(logprobs, list) or not all(isinstance(value, int | float) for value in logprobs):
        return None
    return [float(value) for value in logprobs]


def _captured(step: IntermediateStep) -> LLMCall | None:
    """The call as the wire had it; None if the step was pushed by hand."""
    metadata = step.metadata
    if isinstance(metadata, dict):
        raw = metadata.get("llm_call")
        return None if raw is None else LLMCall.model_validate(raw)
    return metadata.llm_call if isinstance(metadata, TraceMetadata) else None


def _reported(start: IntermediateStep | None, end: IntermediateStep) -> LLMCall:
    """What a pair of steps tells that the workflow pushed by itself: texts and logprobs, no token ids."""
    output = end.data.output if end.data else None
    given = start.data.input if start is not None and start.data else None
    return LLMCall(
        model=end.name or (start.name if start else None) or "unknown",
        messages=_messages(given),
        message={"role": "assistant", "content": output if isinstance(output, str) else str(output or "")},
        logprobs=token_logprobs(_wire_logprobs(end)),
    )


def _messages(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, list) and all(isinstance(message, dict) and "role" in message for message in given):
        return given
    return [] if given is None else [{"role": "user", "content": str(given)}]


def _wire_logprobs(step: IntermediateStep) -> Any:
    payload = step.data.payload if step.data else None
    return payload.get("logprobs") if isinstance(payload, dict) else None

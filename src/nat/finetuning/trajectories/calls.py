"""The LLM calls of a rollout, read from its intermediate steps, and those of them that can be trained on. Pure.

Trained are the calls of the target functions, to the target model, that have logprobs and were drawn from
softmax(logits / temperature): `nat.wire.sampling` has the rule.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType
from nat.data_models.llm_call import LLMCall
from nat.runs.rollouts import LeftOutCause
from nat.wire.numbers import is_logprob
from nat.wire.rows import CallTokens
from nat.wire.sampling import target_names

WHOLE_WORKFLOW = "<workflow>"
"""The target function that stands for all calls of the rollout, whichever function made them."""


@dataclass(frozen=True)
class SeenCall:
    """One LLM call and the function that made it."""

    call: LLMCall
    function: str
    """Name of the innermost function that was running; `<workflow>` for the workflow."""
    logprobs: Any = None
    """The logprobs in the shape of the wire; None if the server sent none."""
    at: int = 0
    """Index of its LLM_END among the steps of the rollout."""
    reward: float | None = None
    """What its answer earned; None where only the reward of the rollout counts."""
    value: float | None = None
    """The return of its answer, by which training compares it; likewise."""

    @property
    def model(self) -> str:
        """The model's key in the YAML, else its name in the request."""
        return self.call.llm_name or self.call.model


def calls_of(steps: Iterable[IntermediateStep]) -> list[SeenCall]:
    """Every LLM call that was answered, in the order of the answers."""
    inputs: dict[str, IntermediateStep] = {}
    seen: list[SeenCall] = []
    for at, step in enumerate(steps):
        if step.event_type == IntermediateStepType.LLM_START:
            inputs[step.UUID] = step
        elif step.event_type == IntermediateStepType.LLM_END:
            call = step.llm_call or _reported(inputs.get(step.UUID), step)
            function = step.function_ancestry.function_name
            logprobs = _wire_logprobs(step) or call.logprobs
            seen.append(SeenCall(call=call, function=function, logprobs=logprobs, at=at))
    return seen


def tokens_of_call(call: LLMCall, value: float | None = None) -> CallTokens | None:
    """The call's exact tokens, None if the server did not report them; `value` is the answer's return."""
    return exact_tokens(
        call.llm_name or call.model,
        call.prompt_token_ids,
        call.token_ids,
        call.logprobs,
        value=value,
        temperature=call.logprobs_temperature,
        policy_version=call.policy_version,
    )


def exact_tokens(
    model: str,
    prompt: Sequence[int] | None,
    sampled: Sequence[int] | None,
    logprobs: Sequence[float] | None,
    *,
    value: float | None,
    temperature: float,
    policy_version: str | None = None,
) -> CallTokens | None:
    """None unless prompt and answer are known id by id, with one possible logprob for each sampled token."""
    if not prompt or sampled is None or logprobs is None or len(sampled) != len(logprobs):
        return None
    if not all(map(is_logprob, logprobs)):
        return None
    return CallTokens(model, prompt, sampled, logprobs, value, temperature, policy_version)


def token_logprobs(logprobs: Any) -> list[float] | None:
    """The numbers alone, from OpenAI's `{"content": [{"logprob": …}]}`, its SDK's model, or a list of them."""
    if isinstance(logprobs, BaseModel):
        logprobs = logprobs.model_dump()
    if isinstance(logprobs, dict):
        content = logprobs.get("content")
        if not isinstance(content, list):
            return None
        logprobs = [entry.get("logprob") if isinstance(entry, dict) else None for entry in content]
    if not isinstance(logprobs, list) or not all(isinstance(value, int | float) for value in logprobs):
        return None
    return [float(value) for value in logprobs]


@dataclass(frozen=True)
class Selection:
    """The calls that can be trained on, or why there is none."""

    calls: tuple[SeenCall, ...] = ()
    without_logprobs: int = 0
    """Calls to the target that were left out because the server sent no logprobs."""
    untrainable: tuple[SeenCall, ...] = ()
    """Calls to the target that were left out because of how they were sampled."""
    cause: LeftOutCause | None = None

    @property
    def of_target(self) -> tuple[SeenCall, ...]:
        """Calls to the target whose answers are known token by token, trained on or not."""
        return (*self.calls, *self.untrainable)


@dataclass(frozen=True)
class Target:
    """The functions and the model whose calls are trained on."""

    functions: Sequence[str]
    model: str | None = None
    """An LLM's key in the YAML, or a name of the model, as the agent or the request gave it, or several of these,
    separated by commas; None for any."""

    def select(self, seen: Sequence[SeenCall]) -> Selection:
        """Select the calls that can be trained on, or say why there is none."""
        of_function = [s for s in seen if WHOLE_WORKFLOW in self.functions or s.function in self.functions]
        if not of_function:
            return Selection(cause=LeftOutCause.NO_TARGET_FUNCTION)
        names = target_names(self.model)
        of_model = [
            s for s in of_function if not names or names & {s.call.llm_name, s.call.model, s.call.requested_model}
        ]
        if not of_model:
            return Selection(cause=LeftOutCause.NO_TARGET_MODEL)
        untrainable = tuple(s for s in of_model if s.call.untrainable_by)
        drawn = [s for s in of_model if not s.call.untrainable_by]
        usable = tuple(s for s in drawn if s.call.logprobs is not None)
        if not usable:
            cause = LeftOutCause.NO_LOGPROBS if drawn else LeftOutCause.UNTRAINABLE_SAMPLING
            return Selection(without_logprobs=len(drawn), untrainable=untrainable, cause=cause)
        return Selection(calls=usable, without_logprobs=len(drawn) - len(usable), untrainable=untrainable)


def _reported(start: IntermediateStep | None, end: IntermediateStep) -> LLMCall:
    """A call from two steps that the workflow pushed: texts and logprobs, without token ids."""
    output = end.data.output if end.data else None
    given = start.data.input if start is not None and start.data else None
    if not isinstance(given, list) or not all(isinstance(message, dict) and "role" in message for message in given):
        given = [] if given is None else [{"role": "user", "content": str(given)}]
    return LLMCall(
        model=end.name or (start.name if start else None) or "unknown",
        messages=given,
        message={"role": "assistant", "content": output if isinstance(output, str) else str(output or "")},
        logprobs=token_logprobs(_wire_logprobs(end)),
    )


def _wire_logprobs(step: IntermediateStep) -> Any:
    payload = step.data.payload if step.data else None
    return payload.get("logprobs") if isinstance(payload, dict) else None

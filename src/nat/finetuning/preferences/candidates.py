"""The candidates of a rollout, read from the TTC_END steps that the workflow pushed. Pure.

A candidate that cannot be read is skipped with the reason; nothing is replaced by a default that would be trained on.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from nat.data_models.finetuning import OpenAIMessage
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepState,
    IntermediateStepType,
    TTCEventData,
)
from nat.data_models.score import score_problem
from nat.errors import findings_of
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.preferences.skips import SkipCause, Skipped
from nat.secrets import excerpt

Prompt = list[OpenAIMessage] | str

_TOOL_KEYS = ("tool_calls", "tool_call_id", "function_call", "name")
_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


@dataclass(frozen=True)
class CandidateStep:
    """One answer to a prompt, with its score."""

    example_id: str
    turn_id: str
    candidate_index: int
    prompt: Prompt
    response: str
    score: float
    raw_metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of the step."""

    def __str__(self) -> str:
        return f"example {self.example_id}, turn {self.turn_id}, candidate {self.candidate_index}"


@dataclass
class Candidates:
    """What the steps of some rollouts gave."""

    candidates: list[CandidateStep] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    stripped: int = 0
    """Candidates whose prompt ended with their own answer, which was removed."""
    other_names: Counter[str] = field(default_factory=Counter)
    """TTC_END steps of other names."""


class Unreadable(Exception):
    """A candidate that is skipped; does not leave this module."""

    def __init__(self, cause: SkipCause, seen: str) -> None:
        super().__init__(cause, seen)
        self.cause = cause
        self.seen = seen


def find_candidates(
    example_id: str, steps: Iterable[IntermediateStep], name: str, functions: Collection[str] = (WHOLE_WORKFLOW,)
) -> Candidates:
    """The candidates among the steps of one rollout: its TTC_END steps of that name, pushed by one of the functions."""
    found = Candidates()
    started: dict[str, None] = {}
    seen_in_turn: Counter[str] = Counter()
    for step in steps:
        if step.name != name:
            if step.event_type is IntermediateStepType.TTC_END:
                found.other_names[str(step.name)] += 1
        elif step.event_type is IntermediateStepType.TTC_START:
            started[step.UUID] = None
        elif step.event_state is IntermediateStepState.END:
            started.pop(step.UUID, None)
            try:
                candidate, stripped = _read(example_id, step, functions, seen_in_turn)
            except Unreadable as problem:
                found.skipped.append(Skipped(problem.cause, f"example {example_id}: {problem.seen}"))
            else:
                found.candidates.append(candidate)
                found.stripped += stripped
    found.skipped += [Skipped(SkipCause.NEVER_ENDED, f"example {example_id}: step {uuid}") for uuid in started]
    return found


def _read(
    example_id: str, step: IntermediateStep, functions: Collection[str], seen_in_turn: Counter[str]
) -> tuple[CandidateStep, bool]:
    """The candidate of a step, and whether its own answer was removed from its prompt."""
    function = step.function_ancestry.function_name
    if step.event_type is not IntermediateStepType.TTC_END:
        raise Unreadable(SkipCause.NOT_TTC, step.event_type)
    if WHOLE_WORKFLOW not in functions and function not in functions:
        raise Unreadable(SkipCause.NOT_TARGET, function)
    data = _event_data(step)
    if data.turn_id is None:
        raise Unreadable(SkipCause.NO_TURN, f"turn_id None, turn_index {data.turn_index}")
    index = seen_in_turn[data.turn_id] if data.candidate_index is None else data.candidate_index
    seen_in_turn[data.turn_id] += 1
    where = f"turn {data.turn_id}, candidate {index}"
    if data.score is None:
        raise Unreadable(SkipCause.NO_SCORE, where)
    if problem := score_problem(data.score):
        raise Unreadable(SkipCause.BAD_SCORE, f"{where}: {problem}")
    response = _response(data.output, where)
    given = _prompt(data.input, where)
    prompt = without_answer(given, response)
    if not isinstance(prompt, str) and prompt[-1].role == "assistant":
        seen = excerpt(repr(prompt[-1].content), 60)
        raise Unreadable(SkipCause.BAD_PROMPT, f"{where}: it ends with an assistant message, {seen}")
    metadata = step.metadata.model_dump(exclude_none=True) if isinstance(step.metadata, BaseModel) else step.metadata
    return (
        CandidateStep(
            example_id=example_id,
            turn_id=data.turn_id,
            candidate_index=index,
            prompt=prompt,
            response=response,
            score=data.score,
            raw_metadata=dict(metadata or {}),
        ),
        prompt is not given,
    )


def _event_data(step: IntermediateStep) -> TTCEventData:
    """The step's data; another class of data has the same fields as extra ones."""
    if step.data is None:
        raise Unreadable(SkipCause.BAD_DATA, f"step {step.UUID} without data")
    if isinstance(step.data, TTCEventData):
        return step.data
    try:
        return TTCEventData.model_validate(dict(step.data))
    except ValidationError as error:
        raise Unreadable(SkipCause.BAD_DATA, f"step {step.UUID}: {findings_of(error)[0]}") from error


def _prompt(value: Any, where: str) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value:
        return [_message(message, where) for message in value]
    seen = "None" if value is None else f"{type(value).__name__} {excerpt(repr(value), 60)}"
    raise Unreadable(SkipCause.BAD_PROMPT, f"{where}: {seen}")


def _message(message: Any, where: str) -> OpenAIMessage:
    """A message of OpenAI's or LangChain's shape, with its tool calls."""
    if isinstance(message, OpenAIMessage):
        return message
    fields = message.model_dump() if isinstance(message, BaseModel) else message
    if isinstance(fields, Mapping):
        role = fields.get("role") or _LANGCHAIN_ROLES.get(str(fields.get("type")))
        text = _text(fields.get("content"))
        if isinstance(role, str) and text is not None:
            tools = {key: fields[key] for key in _TOOL_KEYS if fields.get(key)}
            return OpenAIMessage.model_validate({"role": str(role), "content": text, **tools})
    raise Unreadable(SkipCause.BAD_PROMPT, f"{where}: a message without role and text, {excerpt(repr(message), 60)}")


def _text(content: Any) -> str | None:
    """The text of a message's content; None if it has another part, such as an image."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    texts = [part for part in parts if isinstance(part, str)]
    return "".join(texts) if len(texts) == len(parts) else None


def _response(value: Any, where: str) -> str:
    """The text of an answer, which may be given as a message or as a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    fields = value.model_dump() if isinstance(value, BaseModel) else value
    if isinstance(fields, Mapping) and isinstance(content := fields.get("content"), str):
        return content
    seen = "None" if value is None else f"{type(value).__name__} {excerpt(repr(value), 60)}"
    raise Unreadable(SkipCause.BAD_RESPONSE, f"{where}: {seen}")


def messages_of(prompt: Prompt) -> list[dict[str, Any]]:
    """The prompt in the form of the chat API; a text is a message of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [each.model_dump() for each in prompt]


def without_answer(prompt: Prompt, *responses: str) -> Prompt:
    """The prompt without the answer that an agent has appended to it already: one of these, up to white space."""
    if isinstance(prompt, str) or len(prompt) == 1 or prompt[-1].role != "assistant":
        return prompt
    return prompt[:-1] if prompt[-1].content.strip() in {response.strip() for response in responses} else prompt

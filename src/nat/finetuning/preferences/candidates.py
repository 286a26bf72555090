"""The candidates of a rollout, read from the TTC_END steps that the workflow pushed, and their pairs. Pure.

A candidate that cannot be read is skipped with the reason; nothing is replaced by a default that would be trained on.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from nat.data_models.finetuning import OpenAIMessage
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType, TTCEventData
from nat.data_models.score import score_problem
from nat.errors import findings_of
from nat.finetuning.trajectories.calls import WHOLE_WORKFLOW
from nat.preferences.pairs import PairRule, SkipCause
from nat.preferences.parting import marked_messages
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


@dataclass(frozen=True)
class PreferencePair:
    """Two answers to one prompt; the first has the higher score."""

    example_id: str
    turn_id: str
    prompt: Prompt
    chosen_response: str
    rejected_response: str
    chosen_score: float
    rejected_score: float
    score_diff: float
    chosen_index: int
    rejected_index: int
    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of both steps, and the number of candidates of the turn."""


class Skipped(NamedTuple):
    """One step, turn or pair that was left out."""

    cause: SkipCause
    where: str
    """Its place and what was seen there, for a message."""


class _Unreadable(Exception):
    """A candidate that is skipped."""

    def __init__(self, cause: SkipCause, seen: str) -> None:
        super().__init__(cause, seen)
        self.cause, self.seen = cause, seen


def find_candidates(
    example_id: str, steps: Iterable[IntermediateStep], name: str, functions: Collection[str] = (WHOLE_WORKFLOW,)
) -> tuple[list[CandidateStep], list[Skipped]]:
    """The candidates among the steps of one rollout: its TTC_END steps of that name, pushed by one of the functions."""
    found, skipped, seen_in_turn = list[CandidateStep](), list[Skipped](), Counter[str]()
    for step in steps:
        if step.event_type is IntermediateStepType.TTC_END and step.name == name:
            function = step.function_ancestry.function_name
            try:
                if WHOLE_WORKFLOW not in functions and function not in functions:
                    raise _Unreadable(SkipCause.NOT_TARGET, function)
                found.append(_read(example_id, step, seen_in_turn))
            except _Unreadable as problem:
                skipped.append(Skipped(problem.cause, f"example {example_id}: {problem.seen}"))
    return found, skipped


def _read(example_id: str, step: IntermediateStep, seen_in_turn: Counter[str]) -> CandidateStep:
    """The candidate of a step; another class of data has the same fields as extra ones."""
    try:
        data = step.data if isinstance(step.data, TTCEventData) else TTCEventData.model_validate(dict(step.data or {}))
    except ValidationError as error:
        raise _Unreadable(SkipCause.BAD_DATA, f"step {step.UUID}: {findings_of(error)[0]}") from error
    if data.turn_id is None:
        raise _Unreadable(SkipCause.BAD_DATA, f"step {step.UUID}: turn_id None, turn_index {data.turn_index}")
    index = seen_in_turn[data.turn_id] if data.candidate_index is None else data.candidate_index
    seen_in_turn[data.turn_id] += 1
    where = f"turn {data.turn_id}, candidate {index}"
    if problem := score_problem(data.score):
        raise _Unreadable(SkipCause.BAD_SCORE, f"{where}: {problem}")
    response = _fields(data.output)
    if isinstance(response, Mapping):
        response = response.get("content")
    if not isinstance(response, str | int | float):
        raise _Unreadable(SkipCause.BAD_RESPONSE, f"{where}: {_shown(data.output)}")
    prompt = without_answer(_prompt(data.input, where), str(response))
    if not isinstance(prompt, str) and prompt[-1].role == "assistant":
        seen = excerpt(repr(prompt[-1].content), 60)
        raise _Unreadable(SkipCause.BAD_PROMPT, f"{where}: it ends with an assistant message, {seen}")
    return CandidateStep(
        example_id=example_id,
        turn_id=data.turn_id,
        candidate_index=index,
        prompt=prompt,
        response=str(response),
        score=float(data.score or 0.0),
        raw_metadata=dict(_fields(step.metadata, exclude_none=True) or {}),
    )


def _fields(value: Any, *, exclude_none: bool = False) -> Any:
    return value.model_dump(exclude_none=exclude_none) if isinstance(value, BaseModel) else value


def _shown(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} {excerpt(repr(value), 60)}"


def _prompt(value: Any, where: str) -> Prompt:
    """A text, or messages of OpenAI's or LangChain's shape, with their tool calls."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise _Unreadable(SkipCause.BAD_PROMPT, f"{where}: {_shown(value)}")
    messages = []
    for given in value:
        fields = _fields(given) if isinstance(_fields(given), Mapping) else {}
        role, text = fields.get("role") or _LANGCHAIN_ROLES.get(str(fields.get("type"))), _text(fields.get("content"))
        if not isinstance(role, str) or text is None:
            raise _Unreadable(SkipCause.BAD_PROMPT, f"{where}: a message without role and text, {_shown(given)}")
        tools = {key: fields[key] for key in _TOOL_KEYS if fields.get(key)}
        messages.append(OpenAIMessage.model_validate({"role": str(role), "content": text, **tools}))
    return messages


def _text(content: Any) -> str | None:
    """The text of a message's content; None if it has another part, such as an image."""
    parts = content if isinstance(content, list) else [content or ""]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    known = [text for text in texts if isinstance(text, str)]
    return "".join(known) if len(known) == len(texts) else None


def messages_of(prompt: Prompt) -> list[dict[str, Any]]:
    """The prompt in the form of the chat API; a text is a message of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [each.model_dump() for each in prompt]


def without_answer(prompt: Prompt, *responses: str) -> Prompt:
    """The prompt without the answer that an agent has appended to it already: one of these, up to white space."""
    if isinstance(prompt, str) or len(prompt) == 1 or prompt[-1].role != "assistant":
        return prompt
    return prompt[:-1] if prompt[-1].content.strip() in {response.strip() for response in responses} else prompt


def pair_turn(turn: Sequence[CandidateStep], rule: PairRule) -> tuple[list[PreferencePair], list[Skipped]]:
    """The pairs of one turn, the largest difference first, candidates of equal scores in the order of their steps.

    A turn whose best and worst alone are wanted, and make no pair, counts as skipped once.
    """
    where = f"example {turn[0].example_id}, turn {turn[0].turn_id}"
    if len(turn) == 1:
        return [], [Skipped(SkipCause.SINGLE_CANDIDATE, where)]
    ranked = sorted(turn, key=lambda candidate: -candidate.score)

    def unlike(better: int, worse: int) -> SkipCause | None:
        """Why two candidates are no answers to compare, whatever their scores."""
        chosen, rejected = ranked[better], ranked[worse]
        one, other = (marked_messages(messages_of(each.prompt), ()) for each in (chosen, rejected))
        if one != other:
            return SkipCause.DIFFERENT_PROMPTS
        return SkipCause.EQUAL_RESPONSES if chosen.response == rejected.response else None

    def compare(better: int, worse: int) -> PreferencePair | SkipCause:
        return unlike(better, worse) or _pair(ranked[better], ranked[worse], len(turn))

    pairs, refused, excluded = rule.choose([candidate.score for candidate in ranked], compare)
    skipped = []
    for better, worse, why in (*refused, *excluded):
        both = f"candidates {ranked[better].candidate_index} and {ranked[worse].candidate_index}"
        scores = f"scores {ranked[better].score:g} and {ranked[worse].score:g}"
        cause = unlike(better, worse) or SkipCause(why)  # equal answers explain equal scores
        skipped.append(Skipped(cause, f"{where}, {both}: {scores}"))
    return pairs, skipped if rule.which == "all" else [] if pairs else skipped[:1]


def _pair(chosen: CandidateStep, rejected: CandidateStep, num_candidates: int) -> PreferencePair:
    return PreferencePair(
        example_id=chosen.example_id,
        turn_id=chosen.turn_id,
        prompt=chosen.prompt,
        chosen_response=chosen.response,
        rejected_response=rejected.response,
        chosen_score=chosen.score,
        rejected_score=rejected.score,
        score_diff=chosen.score - rejected.score,
        chosen_index=chosen.candidate_index,
        rejected_index=rejected.candidate_index,
        metadata={
            "chosen_raw_metadata": chosen.raw_metadata,
            "rejected_raw_metadata": rejected.raw_metadata,
            "num_candidates": num_candidates,
        },
    )

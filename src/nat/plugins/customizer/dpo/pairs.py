"""Preference pairs out of trajectories: what is trained on, and what is left out and why. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from nat.data_models.finetuning import DPOItem, OpenAIMessage, Trajectory, TrajectoryCollection
from nat.data_models.score import is_finite
from nat.errors import InvalidTrajectories, NoLearningSignal
from nat.finetuning.trajectories.texts import dpo_items

Message = dict[str, Any]
Prompt = str | list[Message]


class PairSkipCause(StrEnum):
    """Why a pair is not trained on."""

    NO_PAIR = "the trajectory has no preference pair (DPOItem)"
    TIE = "both responses have the same score"
    NOT_FINITE = "a score is not a finite number"
    EQUAL = "chosen and rejected response are equal"
    DUPLICATE = "the same pair was collected before"
    NOT_DRAWN = "max_pairs was reached"


@dataclass(frozen=True)
class CustomizerPair:
    """One preference."""

    example_id: str
    prompt: Prompt
    chosen: str
    rejected: str


def checked(collection: TrajectoryCollection) -> tuple[TrajectoryCollection, Counter[PairSkipCause]]:
    """The trajectories whose pairs say which response is better, and the number of the others by cause."""
    causes: Counter[PairSkipCause] = Counter()
    groups = []
    for group in collection.trajectories:
        found = [_problem(trajectory) for trajectory in group]
        causes.update(problem for problem in found if problem is not None)
        groups.append([trajectory for trajectory, problem in zip(group, found, strict=True) if problem is None])
    return TrajectoryCollection(trajectories=[g for g in groups if g], run_id=collection.run_id), causes


def distinct(collection: TrajectoryCollection) -> tuple[TrajectoryCollection, Counter[PairSkipCause]]:
    """The first of each set of trajectories with the same prompt and the same responses."""
    seen: set[str] = set()
    groups, dropped = [], 0
    for group in collection.trajectories:
        kept = []
        for trajectory in group:
            key = repr([item.model_dump() for item in dpo_items(trajectory)])
            if key in seen:
                dropped += 1
            else:
                seen.add(key)
                kept.append(trajectory)
        if kept:
            groups.append(kept)
    return TrajectoryCollection(trajectories=groups, run_id=collection.run_id), Counter(
        {PairSkipCause.DUPLICATE: dropped}
    )


def drawn(
    collection: TrajectoryCollection, limit: int | None, rng: Random
) -> tuple[TrajectoryCollection, Counter[PairSkipCause]]:
    """At most `limit` trajectories, drawn at random; they stay in their groups and in their order."""
    count = sum(map(len, collection.trajectories))
    if limit is None or count <= limit:
        return collection, Counter()
    chosen = set(rng.sample(range(count), limit))
    numbers = iter(range(count))
    groups = [[t for t in group if next(numbers) in chosen] for group in collection.trajectories]
    kept = TrajectoryCollection(trajectories=[g for g in groups if g], run_id=collection.run_id)
    return kept, Counter({PairSkipCause.NOT_DRAWN: count - limit})


def check_any_left(collection: TrajectoryCollection, causes: Counter[PairSkipCause]) -> None:
    """Raise if no pair is left.

    Raises:
        InvalidTrajectories: no trajectory had a pair, or their scores are no numbers.
        NoLearningSignal: no pair says which response is better.

    """
    if collection.trajectories:
        return
    lines = [f"  {count} x {cause}" for cause, count in causes.most_common() if count]
    if not lines or causes[PairSkipCause.NO_PAIR] == causes.total():
        raise InvalidTrajectories(
            f"none of {causes.total()} trajectories has a preference pair (a DPOItem)",
            hint="use a trajectory builder that gives pairs, such as dpo_traj_builder, and let the workflow score "
            "several candidates per turn",
        )
    message = "\n".join(["no preference pair can be trained on; left out were:", *lines])
    if causes[PairSkipCause.NOT_FINITE] == causes.total():
        raise InvalidTrajectories(message, hint="let the workflow give each candidate a finite number as score")
    raise NoLearningSignal(
        message, hint="sample candidates that differ (a higher temperature, more of them), and score them more finely"
    )


def pairs_of(collection: TrajectoryCollection, *, whole_history: bool) -> list[CustomizerPair]:
    """The pairs of all trajectories, with their prompts as the service gets them."""
    return [
        CustomizerPair(
            example_id=_example(trajectory),
            prompt=prompt_of(item, whole_history=whole_history),
            chosen=item.chosen_response,
            rejected=item.rejected_response,
        )
        for group in collection.trajectories
        for trajectory in group
        for item in dpo_items(trajectory)
    ]


def prompt_of(item: DPOItem, *, whole_history: bool) -> Prompt:
    """All messages; or the last turn: the system prompt and what follows from the last user message on.

    A last turn of one user message is its text, as the toolkit's plug-in sends it. An answer at the end that repeats
    a response of the pair is that response, and no part of the prompt.
    """
    if isinstance(item.prompt, str):
        return [{"role": "user", "content": item.prompt}] if whole_history else item.prompt
    messages = _without_answer(item.prompt, {item.chosen_response, item.rejected_response})
    if not whole_history:
        messages = _last_turn(messages)
        if len(messages) == 1 and messages[0].role == "user":
            return messages[0].content
    return [message.model_dump(exclude_none=True) for message in messages]


def _without_answer(messages: Sequence[OpenAIMessage], responses: set[str]) -> Sequence[OpenAIMessage]:
    last = messages[-1] if messages else None
    return messages[:-1] if last and last.role == "assistant" and last.content in responses else messages


def _last_turn(messages: Sequence[OpenAIMessage]) -> list[OpenAIMessage]:
    users = [position for position, message in enumerate(messages) if message.role == "user"]
    begin = users[-1] if users else 0
    system = [message for message in messages[:begin] if message.role in {"system", "developer"}]
    return [*system, *messages[begin:]]


def _example(trajectory: Trajectory) -> str:
    """The example that a pair is of; without an id, its prompt, since turns share the beginning of their prompt."""
    facts = trajectory.metadata or {}
    named = facts.get("example_id", facts.get("id"))
    return str(named) if named is not None else repr(dpo_items(trajectory)[0].prompt)


def _problem(trajectory: Trajectory) -> PairSkipCause | None:
    facts = trajectory.metadata or {}
    if not dpo_items(trajectory):
        return PairSkipCause.NO_PAIR
    scores = [facts[name] for name in ("chosen_score", "rejected_score") if facts.get(name) is not None]
    if not all(map(is_finite, [trajectory.reward, *scores])):
        return PairSkipCause.NOT_FINITE
    if len(scores) == 2 and math.isclose(*scores, rel_tol=1e-9, abs_tol=1e-12):  # noqa: PLR2004 - chosen and rejected
        return PairSkipCause.TIE
    if any(item.chosen_response == item.rejected_response for item in dpo_items(trajectory)):
        return PairSkipCause.EQUAL
    return None

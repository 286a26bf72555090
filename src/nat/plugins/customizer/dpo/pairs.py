"""The preference pairs of a job: which of them, and their prompts as the service gets them. Pure."""

from collections import Counter
from itertools import count
from random import Random

from nat.data_models.finetuning import DPOItem, OpenAIMessage, Trajectory, TrajectoryCollection
from nat.finetuning.preferences.trajectories import dpo_items, without_problems
from nat.preferences.skips import SkipCause


def distinct(collection: TrajectoryCollection) -> tuple[TrajectoryCollection, Counter[SkipCause]]:
    """The first of each set of trajectories with the same prompt and the same responses."""
    seen: set[str] = set()

    def problem(trajectory: Trajectory) -> SkipCause | None:
        key = repr(dpo_items(trajectory))
        if key in seen:
            return SkipCause.DUPLICATE
        seen.add(key)
        return None

    return without_problems(collection, problem)


def drawn(
    collection: TrajectoryCollection, limit: int | None, rng: Random
) -> tuple[TrajectoryCollection, Counter[SkipCause]]:
    """At most `limit` trajectories, drawn at random; they stay in their groups and in their order."""
    total = sum(map(len, collection.trajectories))
    if limit is None or total <= limit:
        return collection, Counter()
    chosen, numbers = set(rng.sample(range(total), limit)), count()
    return without_problems(collection, lambda _: None if next(numbers) in chosen else SkipCause.NOT_DRAWN)


def pairs_of(collection: TrajectoryCollection, *, whole_history: bool) -> list[tuple[str, DPOItem]]:
    """Each pair after the example that it is of, with its prompt as the service gets it."""
    return [
        (_example(trajectory), item.model_copy(update={"prompt": _prompt(item, whole_history=whole_history)}))
        for group in collection.trajectories
        for trajectory in group
        for item in dpo_items(trajectory)
    ]


def _prompt(item: DPOItem, *, whole_history: bool) -> str | list[OpenAIMessage]:
    """All messages; or the last turn: the system prompt and what follows from the last user message on.

    A last turn of one user message is its text, as the toolkit's plug-in sends it.
    """
    if isinstance(item.prompt, str):
        return [OpenAIMessage(role="user", content=item.prompt)] if whole_history else item.prompt
    if whole_history:
        return item.prompt
    users = [position for position, message in enumerate(item.prompt) if message.role == "user"]
    begin = users[-1] if users else 0
    system = [message for message in item.prompt[:begin] if message.role in {"system", "developer"}]
    last_turn = [*system, *item.prompt[begin:]]
    return last_turn[0].content if [message.role for message in last_turn] == ["user"] else last_turn


def _example(trajectory: Trajectory) -> str:
    """The example that a pair is of; without an id, its prompt, since turns share the beginning of their prompt."""
    facts = trajectory.metadata or {}
    named = facts.get("example_id", facts.get("id"))
    return str(named) if named is not None else repr(dpo_items(trajectory)[0].prompt)

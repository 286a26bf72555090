"""The preference pairs of a job: which of them, their prompts as the service gets them, and its two files. Pure."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from nat.data_models.finetuning import DPOItem, OpenAIMessage, Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories
from nat.finetuning.preferences.trajectories import dpo_items, without_problems
from nat.preferences.pairs import SkipCause

VALIDATION_SHARE = 0.2
"""Share of the examples whose pairs the service validates on."""


@dataclass(frozen=True)
class Dataset:
    """Two files of JSON lines."""

    name: str
    run_id: str
    training: bytes
    validation: bytes

    @property
    def description(self) -> str:
        return f"NAT preference pairs of run {self.run_id}"


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


def split(pairs: Sequence[tuple[str, DPOItem]], rng: Random) -> tuple[list[DPOItem], list[DPOItem]]:
    """The pairs to train and to validate on, of examples drawn at random.

    All turns of an example stay together; no pair is in both.

    Raises:
        InvalidTrajectories: all pairs are of one example, or the examples have equal pairs.

    """
    examples = sorted({example for example, _ in pairs})
    rng.shuffle(examples)
    held_out = set(examples[: max(1, round(VALIDATION_SHARE * len(examples)))])
    training = [pair for example, pair in pairs if example not in held_out]
    trained = {pair.model_dump_json() for pair in training}
    validation = [pair for example, pair in pairs if example in held_out and pair.model_dump_json() not in trained]
    if not training or not validation:
        seen = "all are of one example" if len(examples) == 1 else "the examples have equal pairs"
        raise InvalidTrajectories(
            f"{len(pairs)} preference pairs cannot be split into training and validation: {seen}",
            hint="play more examples, so that some can be kept apart for the service's validation",
        )
    return training, validation


def json_lines(pairs: Sequence[DPOItem], training_type: str) -> bytes:
    """The rows in order; with SFT, a demonstration that won against several responses is written once."""
    if training_type == "dpo":
        rows = [pair.model_dump(exclude_none=True) for pair in pairs]
    else:
        rows = [_demonstration(pair) for pair in pairs]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if training_type != "dpo":
        lines = list(dict.fromkeys(lines))
    return "\n".join(lines).encode(errors="replace")


def _demonstration(pair: DPOItem) -> dict[str, Any]:
    """A row of SFT: the chosen response alone."""
    prompt = pair.model_dump(exclude_none=True)["prompt"]
    if isinstance(prompt, str):
        return {"prompt": prompt, "completion": pair.chosen_response}
    return {"messages": [*prompt, {"role": "assistant", "content": pair.chosen_response}]}

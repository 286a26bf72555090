"""Trajectories that nobody sampled here: demonstrations, and pairs of answers; as text, without tokens. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from nat.data_models.finetuning import DPOItem, Trajectory, TrajectoryCollection
from nat.finetuning.trajectories.groups import example_id
from nat.wire.texts import Conversation


class TextTrajectory(Trajectory):
    """A conversation that somebody wrote, with the answers to learn from."""

    conversation: Conversation = Field(exclude=True, repr=False)
    desirable: bool | None = Field(default=None, exclude=True)
    """Whether it is one to imitate, if its row says so by itself; else it is compared with others of its group."""

    @property
    def is_preference(self) -> bool:
        return self.desirable is not None


class PairTrajectory(Trajectory):
    """A pair of answers to the same prompt; its episode has the pair as a `DPOItem`, without tool calls."""

    chosen: Conversation = Field(exclude=True, repr=False)
    rejected: Conversation = Field(exclude=True, repr=False)


@dataclass(frozen=True)
class TextRollout:
    """A conversation with its reward."""

    reward: float
    conversation: Conversation
    desirable: bool | None = None
    """Whether it is one to imitate, if its row says so by itself."""


def has_texts(collection: TrajectoryCollection) -> bool:
    """True if some of the trajectories are texts, which have to be turned into tokens."""
    every = (trajectory for group in collection.trajectories for trajectory in group)
    return any(isinstance(each, TextTrajectory) or dpo_items(each) for each in every)


def text_groups(collection: TrajectoryCollection) -> list[tuple[str, list[TextRollout]]]:
    """The texts to compare with each other, under an id: each pair by itself, and the conversations of each group."""
    found: list[tuple[str, list[TextRollout]]] = []
    for number, group in enumerate(collection.trajectories):
        alone = [TextRollout(t.reward, t.conversation, t.desirable) for t in group if isinstance(t, TextTrajectory)]
        if alone:
            found.append((str(number), alone))
        for trajectory in group:
            pairs = _conversations(trajectory)
            found += [(f"{number}/{example_id(trajectory)}/{place}", list(pair)) for place, pair in enumerate(pairs)]
    return found


def dpo_items(trajectory: Trajectory) -> list[DPOItem]:
    """The pairs of answers in a trajectory."""
    return [item for item in trajectory.episode if isinstance(item, DPOItem)]


def _conversations(trajectory: Trajectory) -> Iterator[tuple[TextRollout, TextRollout]]:
    better, worse = _scores(trajectory)
    if isinstance(trajectory, PairTrajectory):
        yield TextRollout(better, trajectory.chosen), TextRollout(worse, trajectory.rejected)
        return
    for item in dpo_items(trajectory):
        chosen, rejected = (answered(_messages(item), text) for text in (item.chosen_response, item.rejected_response))
        yield TextRollout(better, chosen), TextRollout(worse, rejected)


def _scores(trajectory: Trajectory) -> tuple[float, float]:
    """The scores of the pair, if its builder gives them and they tell which is better; else 1 and 0."""
    facts = trajectory.metadata or {}
    chosen, rejected = facts.get("chosen_score"), facts.get("rejected_score")
    if isinstance(chosen, int | float) and isinstance(rejected, int | float) and chosen > rejected:
        return float(chosen), float(rejected)
    return 1.0, 0.0


def _messages(item: DPOItem) -> list[dict[str, Any]]:
    if isinstance(item.prompt, str):
        return [{"role": "user", "content": item.prompt}]
    return [message.model_dump() for message in item.prompt]


def answered(prompt: Sequence[dict[str, Any]], text: str) -> Conversation:
    """A conversation that ends with this answer, to learn from the answer alone."""
    return Conversation(messages=[*prompt, {"role": "assistant", "content": text}], answers=[len(prompt)])

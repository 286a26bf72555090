"""Trajectories as the training rows of an exact backend, read from the answers as a plug-in has left them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field

from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories, NoTrajectories
from nat.finetuning.trajectories.calls import tokens_of_call
from nat.finetuning.trajectories.episodes import rows_of_episode
from nat.finetuning.trajectories.messages import Thread
from nat.wire.training import Conversation, TrainingGroup, TrainingRollout


@dataclass(frozen=True)
class TextRollout:
    """A conversation that somebody wrote, with its reward."""

    reward: float
    conversation: Conversation
    desirable: bool | None = None
    """Whether it is one to imitate, if its row says so by itself; else it is compared with others of its group."""


class TextTrajectory(Trajectory):
    """A text or a pair of them; of a pair, the episode has a `DPOItem`, without tool calls."""

    texts: tuple[TextRollout, ...] = Field(exclude=True, repr=False)
    """One; of a pair the better and the worse one."""

    @property
    def is_preference(self) -> bool:
        return super().is_preference or self.texts[0].desirable is not None


def broken_by(threads: Iterable[Thread]) -> dict[str, int]:
    """Calls with exact tokens that continue a history with different tokens, counted by cause.

    The cause is the server's (a `BrokenPrefix`) or, without one, how the conversation began.
    """
    breaking = [thread for thread in threads if thread.began.breaks_a_prefix]
    begun = [(thread.began, next(iter(thread.sampled.values())).call) for thread in breaking]
    exact = [(began, call) for began, call in begun if tokens_of_call(call) is not None]
    return dict(Counter(call.broken_prefix or began.name.lower() for began, call in exact))


def training_groups(collection: TrajectoryCollection, *, model: str | None = None) -> list[TrainingGroup]:
    """What an exact backend trains on: the trajectories that have token ids, grouped as they are.

    With `model` (an LLM's key in the YAML) only what that model sampled.

    Raises:
        NoTrajectories: no trajectory has exact tokens.
        InvalidTrajectories: a trajectory has shaped rewards, but not one for each answer, or is a preference pair.

    """
    check_no_preferences(collection)
    groups = [
        TrainingGroup(id=_group_id(trajectories, number), rollouts=rollouts)
        for number, trajectories in enumerate(collection.trajectories)
        if (rollouts := [rollout for t in trajectories if (rollout := _rollout(t, model)) is not None])
    ]
    if not groups:
        count = sum(map(len, collection.trajectories))
        raise NoTrajectories(
            f"none of {count} trajectories has the token ids of its answers with one logprob each"
            + (f", sampled by '{model}'" if model else ""),
            hint="train an LLM whose server answers `return_token_ids` and `logprobs` (ours and vLLM do)",
        )
    return groups


def check_no_preferences(collection: TrajectoryCollection) -> None:
    """Raise InvalidTrajectories if there are preference pairs, for an algorithm that trains sampled answers."""
    trajectories = [trajectory for group in collection.trajectories for trajectory in group]
    if pairs := sum(trajectory.is_preference for trajectory in trajectories):
        raise InvalidTrajectories(
            f"{pairs} of {len(trajectories)} trajectories are preference pairs, and this training takes conversations",
            hint="use a trajectory builder that plays rollouts, or an adapter that trains preference pairs",
        )


def _rollout(trajectory: Trajectory, model: str | None) -> TrainingRollout | None:
    rows = rows_of_episode(trajectory, model=model)
    truncated = any((item.metadata or {}).get("finish_reason") == "length" for item in trajectory.answers)
    return TrainingRollout(reward=trajectory.reward, rows=rows, truncated=truncated) if rows else None


def _group_id(trajectories: Iterable[Trajectory], number: int) -> str:
    named = [str(t.metadata["id"]) for t in trajectories if t.metadata and "id" in t.metadata]
    return named[0] if named else str(number)

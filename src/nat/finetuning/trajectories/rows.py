"""Trajectories as the training rows of an exact backend.

The built-in builders pass on the rows that were merged from the calls; for other trajectories, rows are read from the
items of the episode.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import Field, PrivateAttr

from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories, NoTrajectories
from nat.finetuning.trajectories.calls import tokens_of_call
from nat.finetuning.trajectories.episodes import fingerprint, rows_of_episode
from nat.finetuning.trajectories.messages import Thread
from nat.wire.rows import MergedRow
from nat.wire.texts import Conversation
from nat.wire.training import TrainingGroup, TrainingRollout


class RecordedTrajectory(Trajectory):
    """A trajectory with the rows that were merged from its calls.

    Plug-ins may treat it as a `Trajectory` and change it: the rows are used only while the answers and the shaped
    rewards are those that they were made with.
    """

    rows: list[MergedRow] = Field(exclude=True, repr=False)
    _made_with: int = PrivateAttr()

    def model_post_init(self, _context: Any, /) -> None:
        self._made_with = self._fingerprint()

    @property
    def rows_are_current(self) -> bool:
        """False if a plug-in has changed what the rows were made with, even within an item."""
        return self._fingerprint() == self._made_with

    def _fingerprint(self) -> int:
        shaped = self.shaped_rewards
        return hash((tuple(map(fingerprint, self.answers)), None if shaped is None else tuple(shaped)))


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
    if isinstance(trajectory, RecordedTrajectory) and trajectory.rows_are_current:
        rows = [merged.row for merged in trajectory.rows if model in {None, merged.model}]
    else:
        rows = rows_of_episode(trajectory, model=model)
    truncated = any((item.metadata or {}).get("finish_reason") == "length" for item in trajectory.answers)
    return TrainingRollout(reward=trajectory.reward, rows=rows, truncated=truncated) if rows else None


def _group_id(trajectories: Iterable[Trajectory], number: int) -> str:
    named = [str(t.metadata["id"]) for t in trajectories if t.metadata and "id" in t.metadata]
    return named[0] if named else str(number)

"""The calls of a rollout, or the trajectories made of them, as the training rows of an exact backend.

How calls become rows stands in wire/rows.py; here is what is counted and what a backend is given.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from nat.data_models.finetuning import EpisodeItem, Trajectory, TrajectoryCollection
from nat.errors import InvalidTrajectories, NoTrajectories
from nat.finetuning.trajectories.calls import SeenCall
from nat.finetuning.trajectories.messages import Conversation
from nat.finetuning.trajectories.tokens import tokens_of_call, tokens_of_item
from nat.wire.rows import merge
from nat.wire.training import TrainingGroup, TrainingRollout, TrainingRow


def rows_of(calls: Sequence[SeenCall], values: Sequence[float] | None = None) -> list[TrainingRow]:
    """Rows of those calls that have exact tokens; `values`, one for each call, are what answers are compared by."""
    told = [None] * len(calls) if values is None else values
    tokens = (tokens_of_call(seen.call, value) for seen, value in zip(calls, told, strict=True))
    return merge(found for found in tokens if found is not None)


def broken_by(threads: Iterable[Conversation]) -> dict[str, int]:
    """Calls with exact tokens that go on with a history, but not with its tokens, by cause.

    The server's word for it counts (a `BrokenPrefix`); where it told none, how the conversation began.
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
        InvalidTrajectories: a trajectory has shaped rewards, but not one for each answer.

    """
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


def _rollout(trajectory: Trajectory, model: str | None) -> TrainingRollout | None:
    answers = trajectory.answers
    found = [tokens_of_item(item, value) for item, value in zip(answers, _values(trajectory, answers), strict=True)]
    rows = merge(call for call in found if call is not None and model in {None, call.model})
    if not rows:
        return None
    truncated = any((item.metadata or {}).get("finish_reason") == "length" for item in answers)
    return TrainingRollout(reward=trajectory.reward, rows=rows, truncated=truncated)


def _values(trajectory: Trajectory, answers: Sequence[EpisodeItem]) -> Sequence[float | None]:
    shaped = trajectory.shaped_rewards
    if shaped is None:
        return [None] * len(answers)
    if len(shaped) != len(answers):
        raise InvalidTrajectories(
            f"a trajectory has {len(shaped)} shaped_rewards for {len(answers)} answers",
            hint="give one number for each assistant item that is trained on, in their order, or none at all",
        )
    return shaped


def _group_id(trajectories: Iterable[Trajectory], number: int) -> str:
    named = [str(t.metadata["id"]) for t in trajectories if t.metadata and "id" in t.metadata]
    return named[0] if named else str(number)

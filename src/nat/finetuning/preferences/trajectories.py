"""Which pairs of the guide's trajectories an adapter trains on. Pure."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from nat.data_models.finetuning import DPOItem, Trajectory, TrajectoryCollection
from nat.data_models.score import is_score
from nat.errors import InvalidTrajectories, NoLearningSignal
from nat.finetuning.preferences.candidates import without_answer
from nat.preferences.pairs import PairRule, SkipCause


def dpo_items(trajectory: Trajectory) -> list[DPOItem]:
    """The pairs in a trajectory; a response that stands at the end of its own prompt is removed there."""
    return [
        item.model_copy(update={"prompt": without_answer(item.prompt, item.chosen_response, item.rejected_response)})
        for item in trajectory.episode
        if isinstance(item, DPOItem)
    ]


def scores_of(trajectory: Trajectory) -> tuple[float, float]:
    """The scores of the better and the worse answer; 1 and 0 if the builder gives none, or gives the better less."""
    scores = _given_scores(trajectory)
    return (float(scores[0]), float(scores[1])) if len(scores) > 1 and scores[0] > scores[1] else (1.0, 0.0)


def problem_of(trajectory: Trajectory) -> SkipCause | None:
    """Why there is no pair in it to train on; None if there is. It is the builder that says which answer is better."""
    items, scores = dpo_items(trajectory), _given_scores(trajectory)
    if not items:
        return SkipCause.NO_PAIR
    if not all(map(is_score, [trajectory.reward, *scores])):
        return SkipCause.BAD_SCORE
    if any(item.chosen_response == item.rejected_response for item in items):
        return SkipCause.EQUAL_RESPONSES
    return PairRule().undecided(max(scores), min(scores)) if len(scores) > 1 else None


def without_problems(
    collection: TrajectoryCollection, problem: Callable[[Trajectory], SkipCause | None] = problem_of
) -> tuple[TrajectoryCollection, Counter[SkipCause]]:
    """The trajectories without a problem, in their groups and their order, and the number of the others by cause."""
    causes: Counter[SkipCause] = Counter()
    groups = []
    for group in collection.trajectories:
        found = [problem(trajectory) for trajectory in group]
        causes.update(cause for cause in found if cause is not None)
        groups.append([trajectory for trajectory, cause in zip(group, found, strict=True) if cause is None])
    return TrajectoryCollection(trajectories=[g for g in groups if g], run_id=collection.run_id), causes


def check_any_left(collection: TrajectoryCollection, causes: Counter[SkipCause]) -> None:
    """Raise if no pair is left.

    Raises:
        InvalidTrajectories: no trajectory had a pair, or their scores are no numbers.
        NoLearningSignal: no pair says which response is better.

    """
    if collection.trajectories:
        return
    if causes[SkipCause.NO_PAIR] == causes.total():
        raise InvalidTrajectories(
            f"none of {causes.total()} trajectories has a preference pair (a DPOItem)", hint=SkipCause.NO_PAIR.remedy
        )
    counts = causes.most_common()
    message = "\n".join(
        ["no preference pair can be trained on; left out were:", *(f"  {count} x {cause}" for cause, count in counts)]
    )
    error = InvalidTrajectories if causes[SkipCause.BAD_SCORE] == causes.total() else NoLearningSignal
    raise error(message, hint=counts[0][0].remedy)


def _given_scores(trajectory: Trajectory) -> list[Any]:
    facts = trajectory.metadata or {}
    return [facts[name] for name in ("chosen_score", "rejected_score") if facts.get(name) is not None]

"""Texts as the groups of a job: the backend, which has the tokenizer, turns them into rows."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.errors import NoTrajectories
from nat.finetuning.preferences.candidates import messages_of
from nat.finetuning.preferences.trajectories import check_any_left, dpo_items, problem_of, scores_of, without_problems
from nat.finetuning.trajectories.groups import example_id
from nat.finetuning.trajectories.texts import TextRollout, TextTrajectory
from nat.plugins.local.client import BackendClient
from nat.preferences.skips import SkipCause
from nat.wire.texts import MAX_CONVERSATIONS, Conversation, TokenizedConversation, TokenizeRequest
from nat.wire.training import TrainingGroup, TrainingRollout

logger = logging.getLogger(__name__)


def has_texts(collection: TrajectoryCollection) -> bool:
    """True if some of the trajectories are texts, which have to be turned into tokens."""
    every = (trajectory for group in collection.trajectories for trajectory in group)
    return any(isinstance(each, TextTrajectory) or dpo_items(each) for each in every)


def text_groups(collection: TrajectoryCollection) -> list[tuple[str, list[TextRollout]]]:
    """The texts to compare with each other, under an id: each pair by itself, and the conversations of each group."""
    found: list[tuple[str, list[TextRollout]]] = []
    for number, group in enumerate(collection.trajectories):
        written = [(example_id(trajectory), _texts(trajectory)) for trajectory in group]
        if alone := [text for _, sets in written for one in sets if len(one) == 1 for text in one]:
            found.append((str(number), alone))
        for example, sets in written:
            found += [(f"{number}/{example}/{place}", list(pair)) for place, pair in enumerate(sets) if len(pair) > 1]
    return found


def _problem(trajectory: Trajectory) -> SkipCause | None:
    """Rows of a file were checked when it was read."""
    return None if isinstance(trajectory, TextTrajectory) else problem_of(trajectory)


def _texts(trajectory: Trajectory) -> list[tuple[TextRollout, ...]]:
    """The text of a trajectory, or its pairs."""
    if isinstance(trajectory, TextTrajectory):
        return [trajectory.texts]
    better, worse = scores_of(trajectory)
    return [
        (
            TextRollout(better, _answered(messages_of(item.prompt), item.chosen_response)),
            TextRollout(worse, _answered(messages_of(item.prompt), item.rejected_response)),
        )
        for item in dpo_items(trajectory)
    ]


def _answered(prompt: list[dict[str, Any]], text: str) -> Conversation:
    """A conversation that ends with this answer, to learn from the answer alone."""
    return Conversation(messages=[*prompt, {"role": "assistant", "content": text}], answers=[len(prompt)])


async def tokenized_groups(collection: TrajectoryCollection, client: BackendClient) -> list[TrainingGroup]:
    """The texts of a collection as groups of rows; those that cannot be trained on are left out, with a warning.

    Raises:
        InvalidTrajectories: no trajectory had a pair, or their scores are no numbers.
        NoLearningSignal: no pair says which response is better.
        NoTrajectories: the model can take none of the texts.

    """
    usable, causes = without_problems(collection, _problem)
    check_any_left(usable, causes)
    for cause, count in causes.items():
        logger.warning("%d preference pairs are left out: %s", count, cause)
    texts = text_groups(usable)
    rollouts = [rollout for _, group in texts for rollout in group]
    found = iter(await _tokenized(rollouts, client))
    groups = [(name, [(rollout, next(found)) for rollout in group]) for name, group in texts]
    problems = Counter(one.problem for _, group in groups for _, one in group if one.problem is not None)
    listed = "; ".join(f"{count} x {problem}" for problem, count in problems.most_common())
    made = [
        TrainingGroup(id=name, rollouts=kept)
        for name, group in groups
        if (kept := [_rollout(rollout, one) for rollout, one in group if one.rows])
    ]
    if not made:
        raise NoTrajectories(
            f"none of {len(rollouts)} texts can be turned into tokens: {listed}",
            hint="correct the rows that are named, or use a model whose chat template takes them",
        )
    if problems:
        logger.warning("%d of %d texts are left out: %s", problems.total(), len(rollouts), listed)
    return made


def _rollout(text: TextRollout, found: TokenizedConversation) -> TrainingRollout:
    advantage = None if text.desirable is None else 1.0 if text.desirable else -1.0
    return TrainingRollout(reward=text.reward, rows=found.rows, advantage=advantage)


async def _tokenized(rollouts: Sequence[TextRollout], client: BackendClient) -> list[TokenizedConversation]:
    found: list[TokenizedConversation] = []
    for start in range(0, len(rollouts), MAX_CONVERSATIONS):
        part = [rollout.conversation for rollout in rollouts[start : start + MAX_CONVERSATIONS]]
        found += (await client.tokenize(TokenizeRequest(conversations=part))).conversations
    return found

"""Texts as the groups of a job: the backend, which has the tokenizer, turns them into rows."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from nat.data_models.finetuning import Trajectory, TrajectoryCollection
from nat.errors import NoTrajectories
from nat.finetuning.preferences.candidates import Prompt, messages_of
from nat.finetuning.preferences.trajectories import check_any_left, dpo_items, problem_of, scores_of, without_problems
from nat.finetuning.trajectories.groups import example_id
from nat.finetuning.trajectories.rows import TextRollout, TextTrajectory
from nat.plugins.local.client import BackendClient
from nat.wire.training import (
    MAX_CONVERSATIONS,
    Conversation,
    TokenizedConversation,
    TokenizeRequest,
    TrainingGroup,
    TrainingRollout,
)

logger = logging.getLogger(__name__)


def has_texts(collection: TrajectoryCollection) -> bool:
    """True if some of the trajectories are texts, which have to be turned into tokens."""
    every = (trajectory for group in collection.trajectories for trajectory in group)
    return any(isinstance(each, TextTrajectory) or dpo_items(each) for each in every)


def _texts(trajectory: Trajectory) -> list[tuple[TextRollout, ...]]:
    """The text of a trajectory, or its pairs."""
    if isinstance(trajectory, TextTrajectory):
        return [trajectory.texts]
    better, worse = scores_of(trajectory)
    return [
        (_answered(item.prompt, item.chosen_response, better), _answered(item.prompt, item.rejected_response, worse))
        for item in dpo_items(trajectory)
    ]


def _answered(prompt: Prompt, text: str, reward: float) -> TextRollout:
    """A conversation that ends with this answer, to learn from the answer alone."""
    messages = [*messages_of(prompt), {"role": "assistant", "content": text}]
    return TextRollout(reward, Conversation(messages=messages, answers=[len(messages) - 1]))


def _by_group(collection: TrajectoryCollection) -> Iterator[tuple[str, TextRollout]]:
    """The texts after the id of those that they are compared with: each pair by itself, others with their group."""
    for number, group in enumerate(collection.trajectories):
        found = [(example_id(trajectory), texts) for trajectory in group for texts in _texts(trajectory)]
        for place, (example, texts) in enumerate(found):
            name = str(number) if len(texts) == 1 else f"{number}/{example}/{place}"
            yield from ((name, text) for text in texts)


async def tokenized_groups(collection: TrajectoryCollection, client: BackendClient) -> list[TrainingGroup]:
    """The texts of a collection as groups of rows; those that cannot be trained on are left out, with a warning.

    Raises:
        InvalidTrajectories: no trajectory had a pair, or their scores are no numbers.
        NoLearningSignal: no pair says which response is better.
        NoTrajectories: the model can take none of the texts.

    """
    usable, causes = without_problems(  # rows of a file were checked when it was read
        collection, lambda each: None if isinstance(each, TextTrajectory) else problem_of(each)
    )
    check_any_left(usable, causes)
    for cause, count in causes.items():
        logger.warning("%d preference pairs are left out: %s", count, cause)
    texts = list(_by_group(usable))
    found = await _tokenized([text for _, text in texts], client)
    groups: dict[str, list[TrainingRollout]] = {}
    for (name, text), one in zip(texts, found, strict=True):
        if one.rows:
            advantage = None if text.desirable is None else 1.0 if text.desirable else -1.0
            rollout = TrainingRollout(reward=text.reward, rows=one.rows, advantage=advantage)
            groups.setdefault(name, []).append(rollout)
    problems = Counter(one.problem for one in found if one.problem is not None)
    listed = "; ".join(f"{count} x {problem}" for problem, count in problems.most_common())
    if not groups:
        raise NoTrajectories(
            f"none of {len(texts)} texts can be turned into tokens: {listed}",
            hint="correct the rows that are named, or use a model whose chat template takes them",
        )
    if problems:
        logger.warning("%d of %d texts are left out: %s", problems.total(), len(texts), listed)
    return [TrainingGroup(id=name, rollouts=rollouts) for name, rollouts in groups.items()]


async def _tokenized(rollouts: Sequence[TextRollout], client: BackendClient) -> list[TokenizedConversation]:
    found: list[TokenizedConversation] = []
    for start in range(0, len(rollouts), MAX_CONVERSATIONS):
        part = [rollout.conversation for rollout in rollouts[start : start + MAX_CONVERSATIONS]]
        found += (await client.tokenize(TokenizeRequest(conversations=part))).conversations
    return found

"""Texts as the groups of a job: the backend, which has the tokenizer, turns them into rows."""

import logging
from collections import Counter
from collections.abc import Sequence

from nat.data_models.finetuning import TrajectoryCollection
from nat.errors import NoTrajectories
from nat.finetuning.trajectories.texts import TextRollout, text_groups
from nat.plugins.local.client import BackendClient
from nat.wire.texts import MAX_CONVERSATIONS, TokenizedConversation, TokenizeRequest
from nat.wire.training import TrainingGroup, TrainingRollout

logger = logging.getLogger(__name__)


async def tokenized_groups(collection: TrajectoryCollection, client: BackendClient) -> list[TrainingGroup]:
    """The texts of a collection as groups of rows; those that the model cannot take are left out, with a warning.

    Raises:
        NoTrajectories: none is left.

    """
    texts = text_groups(collection)
    rollouts = [rollout for _, group in texts for rollout in group]
    found = iter(await _tokenized(rollouts, client))
    groups = [(name, [(rollout, next(found)) for rollout in group]) for name, group in texts]
    problems = Counter(one.problem for _, group in groups for _, one in group if one.problem is not None)
    listed = "; ".join(f"{count} x {problem}" for problem, count in problems.most_common())
    usable = [
        TrainingGroup(id=name, rollouts=kept)
        for name, group in groups
        if (kept := [_rollout(rollout, one) for rollout, one in group if one.rows])
    ]
    if not usable:
        raise NoTrajectories(
            f"none of {len(rollouts)} texts can be turned into tokens: {listed}",
            hint="correct the rows that are named, or use a model whose chat template takes them",
        )
    if problems:
        logger.warning("%d of %d texts are left out: %s", problems.total(), len(rollouts), listed)
    return usable


def _rollout(text: TextRollout, found: TokenizedConversation) -> TrainingRollout:
    advantage = None if text.desirable is None else 1.0 if text.desirable else -1.0
    return TrainingRollout(reward=text.reward, rows=found.rows, advantage=advantage)


async def _tokenized(rollouts: Sequence[TextRollout], client: BackendClient) -> list[TokenizedConversation]:
    found: list[TokenizedConversation] = []
    for start in range(0, len(rollouts), MAX_CONVERSATIONS):
        part = [rollout.conversation for rollout in rollouts[start : start + MAX_CONVERSATIONS]]
        found += (await client.tokenize(TokenizeRequest(conversations=part))).conversations
    return found

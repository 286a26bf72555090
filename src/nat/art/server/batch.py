"""A training call of a client → what our learner trains on: rows with given advantages and weights.

    trajectories → advantages → rows → lengths → weights → groups, and the options as a configuration

One packed sequence of ART's is one optimizer step. Here a step takes as many whole trajectories as such a sequence has
room for, where the common prompt of a group takes its room once.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nat.art.server.advantages import Share, balanced, group_advantages, shares
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.training_config import training_config
from nat.art.server.trajectories import HistoryReader, sampled_tokens
from nat.art.wire import ArtChoice, ArtDevTrainConfig, ArtTrainConfig, ArtTrajectoryGroup, InternalModelConfig
from nat.backend.model import LoadedModel
from nat.errors import BatchRefused
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow

logger = logging.getLogger(__name__)

PACKING_UNIT = 2048
"""Packed sequences are as long as the longest row, rounded up to a multiple of this."""
MAX_SEQ_LENGTH = 32768
"""What ART takes for a client that does not say `init_args.max_seq_length`; no packed sequence is longer."""


@dataclass(frozen=True)
class ArtBatch:
    """What a training call trains on."""

    groups: list[TrainingGroup]
    """Empty if nothing in the batch is better or worse than anything else."""
    config: TrainingConfig
    facts: dict[str, float]
    """What came in and what is left of it, under ART's names."""


@dataclass(frozen=True)
class _Trajectory:
    """A trajectory that is better or worse than its group, and what of it can be trained on."""

    group: int
    reward: float
    advantage: float
    truncated: bool
    rows: list[TrainingRow]
    too_long: list[int]
    """Lengths of rows that were left out."""
    answers: int
    retokenized: int
    untrainable: Counter[str]

    @property
    def trained_tokens(self) -> int:
        return sum(row.num_sampled for row in self.rows)

    def rollout(self, share: Share) -> TrainingRollout:
        return TrainingRollout(
            reward=self.reward,
            rows=self.rows,
            truncated=self.truncated,
            advantage=share.advantage,
            weight=share.weight,
        )


def make_art_batch(
    groups: Sequence[ArtTrajectoryGroup],
    config: ArtTrainConfig,
    dev: ArtDevTrainConfig,
    *,
    internal: InternalModelConfig,
    loaded: LoadedModel,
    served: ServedAnswers,
) -> ArtBatch:
    """Turn trajectories into what the learner takes, by ART's rules.

    Raises:
        BatchRefused: an option cannot be honoured, no answer has log probabilities, or one is not the model's.

    """
    _check_answers(groups)
    wanted = internal.max_seq_length
    fits = _longest_row(wanted, dev, loaded)
    reader = HistoryReader(loaded.tokenizer, loaded.vocab_size, served)
    read = [
        trajectory
        for number, group in enumerate(groups)
        for trajectory in _with_signal(number, group, reader, fits, dev)
    ]
    too_long = [length for trajectory in read for length in trajectory.too_long]
    if too_long:
        seen = len(too_long), max(too_long), fits
        logger.warning("%d rows of the batch are left out: the longest has %d tokens, at most %d fit", *seen)
    untrainable = sum((t.untrainable for t in read), Counter[str]())
    kept = [trajectory for trajectory in read if trajectory.rows]
    _check_sampling(untrainable, any_left=bool(kept))
    training_groups = _grouped(kept, shares([t.advantage for t in kept], [t.trained_tokens for t in kept]))
    length = dev.packed_sequence_length or _packed_length(kept, wanted or MAX_SEQ_LENGTH)
    return ArtBatch(
        groups=training_groups,
        config=training_config(
            config,
            dev,
            internal.trainer_args,
            tokens_per_step=length * (config.grad_accumulation_sequences or 1),
        ),
        facts={
            "data/step_num_scenarios": len(groups),
            "data/step_num_trajectories": sum(len(group.trajectories) + len(group.exceptions) for group in groups),
            "data/step_num_groups_submitted": len(groups),
            "data/step_num_groups_trainable": len(training_groups),
            "data/step_trainer_tokens": sum(t.trained_tokens for t in kept),
            "data/step_num_answers": sum(t.answers for t in read),
            "data/step_num_retokenized_answers": sum(t.retokenized for t in read),
            "data/step_num_too_long_rows": len(too_long),
            "data/step_num_untrainable_answers": untrainable.total(),
        },
    )


def _check_answers(groups: Sequence[ArtTrajectoryGroup]) -> None:
    """Raise if there are trajectories, but no token in any of them that could be trained on."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    items = [item for t in trajectories for history in t.histories for item in history.messages_and_choices]
    choices = [item for item in items if isinstance(item, ArtChoice)]
    if trajectories and not any(map(sampled_tokens, choices)):
        raise BatchRefused(
            f"none of {len(trajectories)} trajectories has an answer with log probabilities: {len(items)} messages, "
            f"{len(choices)} of them answers of a model",
            hint="put the `choice` of each chat completion into the trajectory, as the server gave it, not its message",
        )


def _check_sampling(untrainable: Counter[str], *, any_left: bool) -> None:
    """Tell of answers that were not drawn from the model's own distribution; raise if there are no others."""
    if not untrainable:
        return
    seen = "; ".join(f"{count} with {how}" for how, count in untrainable.most_common())
    if not any_left:
        raise BatchRefused(
            f"all answers of the batch that could teach something were sampled otherwise than from the model: {seen}",
            hint="sample with a temperature above 0 and without top_p; every temperature is trained as it was sampled",
        )
    logger.warning("%d answers of the batch are left out of the loss: %s", untrainable.total(), seen)


def _longest_row(wanted: int | None, dev: ArtDevTrainConfig, loaded: LoadedModel) -> int:
    """A row has to fit into the model, into what the client wants of it, and into a packed sequence."""
    limits = (loaded.max_seq_length, wanted, dev.packed_sequence_length)
    return min(limit for limit in limits if limit is not None)


def _with_signal(
    number: int, group: ArtTrajectoryGroup, reader: HistoryReader, max_length: int, dev: ArtDevTrainConfig
) -> Iterator[_Trajectory]:
    raw = group_advantages([t.reward for t in group.trajectories], scale=dev.scale_rewards)
    advantages = balanced(raw, dev.advantage_balance)
    for index, (trajectory, advantage) in enumerate(zip(group.trajectories, advantages, strict=True)):
        if advantage is None:
            continue
        where = f"trajectory_groups.{number}.trajectories.{index}"
        found = reader.rows(trajectory, where=where)
        rows = [row for row in found.rows if len(row.token_ids) <= max_length]
        yield _Trajectory(
            group=number,
            reward=trajectory.reward,
            advantage=advantage,
            truncated=found.truncated,
            rows=rows,
            too_long=[len(row.token_ids) for row in found.rows if len(row.token_ids) > max_length],
            answers=found.answers,
            retokenized=found.retokenized,
            untrainable=found.untrainable,
        )


def _grouped(kept: Sequence[_Trajectory], found: Sequence[Share]) -> list[TrainingGroup]:
    rollouts: dict[int, list[TrainingRollout]] = {}
    for trajectory, share in zip(kept, found, strict=True):
        rollouts.setdefault(trajectory.group, []).append(trajectory.rollout(share))
    return [TrainingGroup(id=str(number), rollouts=own) for number, own in rollouts.items()]


def _packed_length(kept: Sequence[_Trajectory], max_length: int) -> int:
    """The model's own context is no limit: rows that share a packed sequence begin at position 0 each."""
    longest = max((len(row.token_ids) for t in kept for row in t.rows), default=1)
    return min(math.ceil(longest / PACKING_UNIT) * PACKING_UNIT, max_length)

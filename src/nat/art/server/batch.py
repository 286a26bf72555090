"""Turns a client's training call into groups for our learner: rows with given advantages and weights.

    trajectories → advantages → rows → lengths → weights → groups, and the options as a configuration

One packed sequence of ART's is one optimizer step. Here a step takes as many whole trajectories as fit into such a
sequence, where the common prompt of a group counts once.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nat.art.server.advantages import balanced, group_advantages, weighted
from nat.art.server.algorithm import ART
from nat.art.server.exchanges import sampled_tokens
from nat.art.server.served_answers import ServedAnswers
from nat.art.server.store import key_of
from nat.art.server.trajectories import HistoryReader, TrajectoryRows
from nat.art.wire import (
    TRAINED_GROUPS,
    TRAINED_TOKENS,
    ArtChoice,
    ArtDevTrainConfig,
    ArtModel,
    ArtTrainConfig,
    ArtTrajectoryGroup,
    OptimizerArgs,
    TrainerArgs,
)
from nat.backend.model import LoadedModel
from nat.errors import BatchRefused
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow

logger = logging.getLogger(__name__)

PACKING_UNIT = 2048
"""The length of packed sequences is that of the longest row, rounded up to a multiple of this."""
MAX_SEQ_LENGTH = 32768
"""Longest packed sequence for clients that send no `init_args.max_seq_length`; ART's default."""
OFF_POLICY_LIMIT = 10.0
"""Mean |Δ log p| above which answers cannot have come from this model. ART's clients may train on answers of much older
weights, which have drifted by a few nats per token; those of another model or tokenizer differ by more than this."""
NAT_LEARNING_RATE = 5e-5
"""NAT's plug-in always sends this, whatever its configuration; the real values are in the model's trainer_args."""
_OTHER_REFERENCE = "the reference of the KL penalty is the base model; leave the option out"
_REFUSED = {
    "allow_training_without_logprobs": "only what the model sampled is trained on; send answers with their logprobs",
    "kl_penalty_reference_step": _OTHER_REFERENCE,
    "kl_penalty_step_lag": _OTHER_REFERENCE,
    "kl_ref_adapter_path": _OTHER_REFERENCE,
    "plot_tensors": "there are no packed tensors to plot; leave the option out",
    "scale_learning_rate_by_reward_std_dev": "set the learning rate itself; ART has ignored the option since 0.5.9",
}
"""Options of ART's that would silently change nothing, and what to do instead."""


@dataclass(frozen=True)
class ArtBatch:
    """The rows and the configuration of a training call."""

    groups: list[TrainingGroup]
    """Empty if no trajectory of the batch is better or worse than its group."""
    config: TrainingConfig
    facts: dict[str, float]
    """Counts of what the client sent and of what is trained on, under ART's names."""


@dataclass(frozen=True)
class _Trajectory:
    """A trajectory that is better or worse than its group, and its trainable rows."""

    group: int
    reward: float
    advantage: float
    rows: list[TrainingRow]
    """Those that are not too long."""
    found: TrajectoryRows

    @property
    def trained_tokens(self) -> int:
        return sum(row.num_sampled for row in self.rows)


def make_art_batch(
    groups: Sequence[ArtTrajectoryGroup],
    config: ArtTrainConfig,
    dev: ArtDevTrainConfig,
    *,
    model: ArtModel,
    loaded: LoadedModel,
    served: ServedAnswers,
) -> ArtBatch:
    """Turn trajectories into rows for the learner, by ART's rules.

    Raises:
        BatchRefused: an option is not supported, no answer has log probabilities, or one is not the model's.

    """
    _check_answers(groups)
    internal = model.internal_config
    requested = internal.max_seq_length
    limits = (loaded.max_seq_length, requested, dev.packed_sequence_length)
    fits = min(limit for limit in limits if limit is not None)
    reader = HistoryReader(loaded.tokenizer, loaded.vocab_size, served, key_of(model))
    read = [
        trajectory
        for number, group in enumerate(groups)
        for trajectory in _with_signal(number, group, reader, fits, dev)
    ]
    too_long = [length for t in read for row in t.found.rows if (length := len(row.token_ids)) > fits]
    if too_long:
        seen = len(too_long), max(too_long), fits
        logger.warning("%d rows of the batch are left out: the longest has %d tokens, at most %d fit", *seen)
    untrainable = sum((t.found.untrainable for t in read), Counter[str]())
    kept = [trajectory for trajectory in read if trajectory.rows]
    _check_sampling(untrainable, any_left=bool(kept))
    training_groups = _grouped(kept)
    # The model's context does not limit a packed sequence: each row in it begins at position 0.
    longest = max((len(row.token_ids) for t in kept for row in t.rows), default=1)
    packed = min(math.ceil(longest / PACKING_UNIT) * PACKING_UNIT, requested or MAX_SEQ_LENGTH)
    length = dev.packed_sequence_length or packed
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
            TRAINED_GROUPS: len(training_groups),
            TRAINED_TOKENS: sum(t.trained_tokens for t in kept),
            "data/step_num_answers": sum(t.found.answers for t in read),
            "data/step_num_retokenized_answers": sum(t.found.retokenized for t in read),
            "data/step_num_too_long_rows": len(too_long),
            "data/step_num_untrainable_answers": untrainable.total(),
        },
    )


def _check_answers(groups: Sequence[ArtTrajectoryGroup]) -> None:
    """Raise if there are trajectories, but none has a token that can be trained on."""
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    items = [item for t in trajectories for history in t.histories for item in history.messages_and_choices]
    choices = [item for item in items if isinstance(item, ArtChoice)]
    if trajectories and not any(map(sampled_tokens, choices)) and not any(t.exchanges for t in trajectories):
        raise BatchRefused(
            f"none of {len(trajectories)} trajectories has an answer with log probabilities: {len(items)} messages, "
            f"{len(choices)} of them answers of a model",
            hint="put the `choice` of each chat completion into the trajectory, as the server gave it, not its message",
        )


def _check_sampling(untrainable: Counter[str], *, any_left: bool) -> None:
    """Warn of answers that were not drawn from the model's own distribution; raise if there are no others."""
    if not untrainable:
        return
    seen = "; ".join(f"{count} with {how}" for how, count in untrainable.most_common())
    if not any_left:
        raise BatchRefused(
            f"no answer of the batch with a signal was sampled from the model's own distribution: {seen}",
            hint="sample with a temperature above 0 and without top_p; every temperature is trained as it was sampled",
        )
    logger.warning("%d answers of the batch are left out of the loss: %s", untrainable.total(), seen)


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
        yield _Trajectory(number, trajectory.reward, advantage, rows, found)


def _grouped(kept: Sequence[_Trajectory]) -> list[TrainingGroup]:
    signals = weighted([t.advantage for t in kept], [t.trained_tokens for t in kept])
    rollouts: dict[int, list[TrainingRollout]] = {}
    for t, signal in zip(kept, signals, strict=True):
        own = TrainingRollout(
            reward=t.reward, rows=t.rows, truncated=t.found.truncated, advantage=signal.advantage, weight=signal.weight
        )
        rollouts.setdefault(t.group, []).append(own)
    return [TrainingGroup(id=str(number), rollouts=own) for number, own in rollouts.items()]


def training_config(
    config: ArtTrainConfig, dev: ArtDevTrainConfig, trainer: TrainerArgs | None, *, tokens_per_step: int
) -> TrainingConfig:
    """Translate a call's options.

    Raises:
        BatchRefused: an option is set that this server does not support.

    """
    for name, remedy in _REFUSED.items():
        if (value := getattr(dev, name, None)) is not None and value is not False:
            raise BatchRefused(f"dev_config.{name} is {value!r}, which has no effect here", hint=remedy)
    if dev.truncated_importance_sampling is not None and not dev.precalculate_logprobs:
        raise BatchRefused(
            f"dev_config.truncated_importance_sampling is {dev.truncated_importance_sampling}, without effect here",
            hint="it corrects π_old for the sampler, and without precalculate_logprobs π_old is the sampler; set both",
        )
    low, high = (0.2, None) if dev.ppo else (ART.defaults["epsilon"], ART.defaults["epsilon_high"])
    epsilon = low if dev.epsilon is None else dev.epsilon
    epsilon_high = high if dev.epsilon_high is None else dev.epsilon_high
    learning_rate, beta = config.learning_rate, config.beta
    if trainer is not None and learning_rate == NAT_LEARNING_RATE and not beta and not config.kl_penalty_coef:
        learning_rate, beta = trainer.learning_rate or learning_rate, trainer.beta or 0.0
    level = dev.importance_sampling_level
    averaged = level not in {"token", "sequence"}
    return TrainingConfig.model_validate(
        {
            "algorithm": ART.name,
            "options": {
                "ppo": bool(dev.ppo),
                "importance_sampling_level": level if averaged else None,
                "mask_prob_ratio": dev.mask_prob_ratio,
                "max_negative_advantage_importance_sampling_weight": (
                    dev.max_negative_advantage_importance_sampling_weight
                ),
                "kimi_k2_tau": dev.kimi_k2_tau or 0.0,
                "num_trajectories_learning_rate_multiplier_power": dev.num_trajectories_learning_rate_multiplier_power,
            },
            "learning_rate": learning_rate,
            "importance_sampling_level": "token" if averaged else level,
            "old_logprobs": "learner" if dev.precalculate_logprobs else "sampler",
            "epsilon": epsilon,
            "epsilon_high": epsilon if epsilon_high is None else epsilon_high,
            "beta": beta,
            "kl_penalty_coef": config.kl_penalty_coef or dev.kl_penalty_coef or 0.0,
            "kl_penalty_source": "sampler" if dev.kl_penalty_source == "sample" else "learner",
            "importance_sampling_cap": dev.truncated_importance_sampling,
            "tokens_per_step": tokens_per_step,
            "warmup_steps": 0,
            "max_kl": None,
            "max_logprob_difference": OFF_POLICY_LIMIT,
            "max_served_difference": TrainingConfig().max_logprob_difference,
            **(trainer.model_dump(include=set(OptimizerArgs.model_fields), exclude_none=True) if trainer else {}),
        }
    )

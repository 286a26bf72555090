"""Turns the options of a training call into a configuration of our learner."""

import logging

from nat.art.server.algorithm import ART
from nat.art.wire import ArtDevTrainConfig, ArtTrainConfig, OptimizerArgs, TrainerArgs
from nat.errors import BatchRefused
from nat.wire.training import TrainingConfig

logger = logging.getLogger(__name__)

OFF_POLICY_LIMIT = 10.0
"""Mean |Δ log p| above which answers cannot have come from this model. ART's clients may train on answers of much older
weights, which have drifted by a few nats per token; those of another model or tokenizer differ by more than this."""
NAT_LEARNING_RATE = 5e-5
"""NAT's plug-in always sends this, whatever its configuration; the real values are in the model's trainer_args."""


def training_config(
    config: ArtTrainConfig, dev: ArtDevTrainConfig, trainer: TrainerArgs | None, *, tokens_per_step: int
) -> TrainingConfig:
    """Translate a call's options.

    Raises:
        BatchRefused: an option is set that this server does not support.

    """
    check_supported(dev)
    low, high = (0.2, None) if dev.ppo else (ART.defaults["epsilon"], ART.defaults["epsilon_high"])
    epsilon = low if dev.epsilon is None else dev.epsilon
    epsilon_high = high if dev.epsilon_high is None else dev.epsilon_high
    learning_rate, beta = _rate_and_beta(config, trainer)
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
            "importance_sampling_cap": dev.truncated_importance_sampling,
            "tokens_per_step": tokens_per_step,
            "warmup_steps": 0,
            "max_kl": None,
            "max_logprob_difference": OFF_POLICY_LIMIT,
            "max_served_difference": TrainingConfig().max_logprob_difference,
            **(trainer.model_dump(include=set(OptimizerArgs.model_fields), exclude_none=True) if trainer else {}),
        }
    )


def check_supported(dev: ArtDevTrainConfig) -> None:
    """Raise BatchRefused for an option without effect here; log one that would only save memory."""
    extra = dev.model_extra or {}
    other_reference = "the reference of the KL penalty is the base model; leave the option out"
    refused = {
        "allow_training_without_logprobs": (
            dev.allow_training_without_logprobs,
            "only what the model sampled is trained on; send the answers with their logprobs",
        ),
        **{name: (name in extra, other_reference) for name in ("kl_penalty_reference_step", "kl_penalty_step_lag")},
        "kl_ref_adapter_path": (dev.kl_ref_adapter_path is not None, other_reference),
        "plot_tensors": (dev.plot_tensors, "there are no packed tensors to plot; leave the option out"),
        "truncated_importance_sampling": (
            dev.truncated_importance_sampling is not None and not dev.precalculate_logprobs,
            "it corrects π_old for the sampler, and without precalculate_logprobs π_old is the sampler; set both",
        ),
    }
    for name, (is_set, remedy) in refused.items():
        if is_set:
            raise BatchRefused(f"dev_config.{name} is {getattr(dev, name)!r}, which has no effect here", hint=remedy)
    if dev.logprob_calculation_chunk_size is not None:
        logger.info("dev_config.logprob_calculation_chunk_size is not needed here: logits are chunked by memory")


def _rate_and_beta(config: ArtTrainConfig, trainer: TrainerArgs | None) -> tuple[float, float]:
    from_nat = config.learning_rate == NAT_LEARNING_RATE and not config.beta and not config.kl_penalty_coef
    if trainer is None or not from_nat:
        return config.learning_rate, config.beta
    return trainer.learning_rate or config.learning_rate, trainer.beta or 0.0

"""The learning rate of each optimizer step. Pure."""

from nat.wire.training import TrainingConfig

FLOOR = 0.1
"""What is left of the rate after its decay: at zero the weights would stand still, which is an alarm."""


def learning_rate_at(config: TrainingConfig, step: int) -> float:
    """The rate after `step` steps: up from zero to the peak over the warmup, then down to a tenth of it, linearly.

    The decay counts from the first step, as the warmup does, so the peak is a little below `learning_rate` if there
    are both.
    """
    warmup = min(1.0, (step + 1) / max(1, config.warmup_steps))
    decay = 1.0 if config.decay_steps is None else 1 - (1 - FLOOR) * min(1.0, step / config.decay_steps)
    return config.learning_rate * warmup * decay

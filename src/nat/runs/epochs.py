"""How people read epochs: they count from 1. Pure.

In code, journal, metrics and file names an epoch's number counts the updates before it, from 0: epoch 3's rollouts
and the validation of epoch 3 are played with the weights after 3 epochs of training. Whatever a person reads (log,
progress, messages, plot) says it in the words of this module.
"""


def shown(epoch: int) -> int:
    """The number that a person reads."""
    return epoch + 1


def when(epochs_done: int) -> str:
    """When the held-out examples were played."""
    return f"after epoch {epochs_done}" if epochs_done else "before training"

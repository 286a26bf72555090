"""How people read epochs: they count from 1. Pure.

In code, journal, metrics and file names an epoch's number counts the updates before it, from 0: epoch 3's rollouts
and the validation of epoch 3 are played with the weights after 3 epochs of training. Whatever a person reads (log,
progress, messages, plot) says it in the words of this module.
"""

from collections.abc import Sequence

from nat.runs.records import EpochRecord, Phase


def shown(epoch: int) -> int:
    """The number that a person reads."""
    return epoch + 1


def when(epochs_done: int) -> str:
    """When the held-out examples were played."""
    return f"after epoch {epochs_done}" if epochs_done else "before training"


def played_in(phase: Phase, epoch: int) -> str:
    """Where a rollout belongs."""
    return f"training, epoch {shown(epoch)}" if phase is Phase.TRAIN else f"held-out {when(epoch)}"


def span(epochs: Sequence[EpochRecord]) -> str:
    """Some epochs in a row, at least one."""
    first, last = shown(epochs[0].epoch), shown(epochs[-1].epoch)
    return f"epoch {first}" if first == last else f"epochs {first} to {last}"

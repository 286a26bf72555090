"""Decide before each update whether vLLM sleeps during it, so that the learner has the memory of the GPU."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from nat.backend.memory import free_bytes

logger = logging.getLogger(__name__)

_MARGIN = 1.1
"""An update's rows may be longer than those of the ones before."""
Sleeps = Callable[[], bool]
"""Called before an update, while vLLM is awake; True if it is to sleep."""


@dataclass(frozen=True)
class LearnerMemory:
    """Bytes on the device that the learner and vLLM share."""

    most: int
    """The most that the learner has had at once."""
    room: int
    """What it could have while vLLM is awake: what it has, and what is free."""


class SleepIfNeeded:
    """Sleep during the first update, which shows what the learner needs; later only if that does not fit."""

    def __init__(self, read: Callable[[], LearnerMemory]) -> None:
        self._read = read
        self._measured = False
        self._before: bool | None = None

    def __call__(self) -> bool:
        if not self._measured:
            self._measured = True
            logger.info("vLLM sleeps during the first update, which shows how much memory the learner needs")
            return True
        memory = self._read()
        sleeps = memory.most * _MARGIN > memory.room
        if sleeps != self._before:
            logger.info(
                "vLLM %s during updates: the learner has needed %.2f GB, and has room for %.2f GB beside vLLM",
                "sleeps" if sleeps else "stays awake",
                memory.most / 1e9,
                memory.room / 1e9,
            )
        self._before = sleeps
        return sleeps


def sleep_rule(choice: Literal["never", "training", "auto"], device: torch.device) -> Sleeps | None:
    """The rule of an option; None if it never sleeps. On a CPU `auto` means that, since vLLM frees nothing there."""
    if choice == "training":
        return lambda: True
    return SleepIfNeeded(lambda: _read(device)) if choice == "auto" and device.type == "cuda" else None


def release_cached(device: torch.device) -> None:
    """Give the device's memory that torch keeps for later back, so that vLLM finds it when it wakes up."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _read(device: torch.device) -> LearnerMemory:
    room = torch.cuda.memory_allocated(device) + (free_bytes(device) or 0)
    return LearnerMemory(most=torch.cuda.max_memory_allocated(device), room=room)

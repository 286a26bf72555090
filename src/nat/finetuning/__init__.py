"""Epochs of reinforcement learning: trajectories, rewards, curriculum, training jobs, validation.

A plug-in implements the three interfaces in `interfaces`; the guide documents them.
"""

from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder

__all__ = ["Trainer", "TrainerAdapter", "TrajectoryBuilder"]

"""The three interfaces of a finetuning plug-in: builder of trajectories, adapter to a backend, trainer."""

from nat.finetuning.interfaces.finetuning_runner import Trainer
from nat.finetuning.interfaces.trainer_adapter import TrainerAdapter
from nat.finetuning.interfaces.trajectory_builder import TrajectoryBuilder

__all__ = ["Trainer", "TrainerAdapter", "TrajectoryBuilder"]

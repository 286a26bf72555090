"""Alias for plug-ins: the code is in `nat.finetuning.preferences.config`."""

from nat.finetuning.preferences.config import DPOTrajectoryBuilderConfig

__all__ = ["DPOTrajectoryBuilderConfig"]

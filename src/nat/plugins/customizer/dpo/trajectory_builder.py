"""Alias for plug-ins: the code is in `nat.finetuning.preferences.builder`."""

from nat.finetuning.preferences.builder import CandidateStep, DPOTrajectoryBuilder, PreferencePair

__all__ = ["CandidateStep", "DPOTrajectoryBuilder", "PreferencePair"]

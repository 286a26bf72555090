"""Alias for plug-ins: the code is in `nat.art.client.trajectory_builder`."""

from nat.art.client.trajectory_builder import ARTTrajectoryBuilder

__all__ = ["ARTTrajectoryBuilder"]

"""Alias for plug-ins: the code is in `nat.art.client.trainer`."""

from nat.art.client.trainer import ARTTrajectoryBuilder

__all__ = ["ARTTrajectoryBuilder"]

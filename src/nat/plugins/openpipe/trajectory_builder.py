"""`ARTTrajectoryBuilder` under the toolkit's path."""

from nat.art.client.trajectory_builder import ARTTrajectoryBuilder

__all__ = ["ARTTrajectoryBuilder"]

"""Preference pairs: the candidates that a workflow scored → pairs of a better and a worse answer → trajectories."""

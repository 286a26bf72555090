"""Preferences between generations of one example: which to compare, and where they part. Pure, without torch.

The embedded backend, the NeMo Customizer and the export of trajectories share these choices.
"""

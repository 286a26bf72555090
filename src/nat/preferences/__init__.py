"""Preferences between answers: what a pair is, where two rollouts part, and why others are none. Pure, without torch.

The embedded backend, the builder of pairs, NeMo Customizer and the export of trajectories share this rule.
"""

"""Importing this module registers ART's three components."""

# ruff: noqa: F401 - imported for what they register
import nat.plugins.openpipe.trainer
import nat.plugins.openpipe.trainer_adapter
import nat.plugins.openpipe.trajectory_builder

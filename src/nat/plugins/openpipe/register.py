"""Importing this module registers ART's three components."""

# ruff: noqa: F401 - imported for what they register
import nat.art.client.trainer
import nat.art.client.trainer_adapter
import nat.art.client.trajectory_builder

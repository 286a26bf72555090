"""Importing this module registers ART's trainer, trajectory builder and trainer adapter."""

# ruff: noqa: F401 - imported for what they register
import nat.art.client.trainer
import nat.art.client.trainer_adapter

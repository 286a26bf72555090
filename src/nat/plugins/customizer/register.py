"""Importing this module registers the builder of preference pairs."""

# ruff: noqa: F401 - imported for what they register
import nat.finetuning.preferences.builder

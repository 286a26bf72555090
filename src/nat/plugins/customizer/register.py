"""Importing this module registers NeMo Customizer's trainer and trainer adapter."""

# ruff: noqa: F401 - imported for what they register
import nat.finetuning.preferences.builder
import nat.plugins.customizer.dpo.trainer
import nat.plugins.customizer.dpo.trainer_adapter

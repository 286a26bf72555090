"""The module that the plug-in's entry point names."""

# ruff: noqa: F401 - imported for what they register
from . import agent, dial, training, wiki
